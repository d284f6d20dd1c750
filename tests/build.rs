//! Links `rlm-under-test` at a fixed address. The tests start it and its guards ten thousand times, and a third of each start of the debug program was
//! the work of the dynamic linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name| std::env::var(format!("CARGO_CFG_TARGET_{name}"));
    if (target("OS").as_deref(), target("ENV").as_deref()) == (Ok("linux"), Ok("gnu")) {
        println!("cargo::rustc-link-arg-bin=rlm-under-test=-no-pie");
    }
}
