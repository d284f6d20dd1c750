//! Links `rlm-under-test` at a fixed address. The tests start it and its guards ten thousand times, and a third of each start of the debug program was
//! the work of the dynamic linker. Also removes the template of the test repositories when the code that makes it has changed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sandbox.rs");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    // There is none yet in a first build.
    let _absent = std::fs::remove_dir_all(std::path::Path::new(&out).join("repo"));
    let target = |name| std::env::var(format!("CARGO_CFG_TARGET_{name}"));
    if (target("OS").as_deref(), target("ENV").as_deref()) == (Ok("linux"), Ok("gnu")) {
        println!("cargo::rustc-link-arg-bin=rlm-under-test=-no-pie");
    }
}
