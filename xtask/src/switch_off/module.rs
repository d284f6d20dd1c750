//! The module that each crate of the copy gets. A process reads its order from a file at a fixed path, not from a variable: most tests start their
//! programs with an environment of their own.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

/// The name of the module in each crate root.
pub(super) const NAME: &str = "xtask_switches";

/// The order for the processes of the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Run as the original does.
    Nothing,
    /// Note the switches that they reach, in the file of the reached switches.
    Note,
    /// Return early at this switch.
    Off(u32),
}

impl Order {
    /// Returns the content of the file with the order.
    pub(super) fn text(self) -> String {
        match self {
            Self::Nothing => "nothing".into(),
            Self::Note => "note".into(),
            Self::Off(id) => id.to_string(),
        }
    }
}

/// Returns the source text of the module in a crate with these switches.
///
/// After the first call in a process, `is_off` makes only system calls that a signal handler may make, and allocates nothing.
pub(super) fn source(order: &Path, reached: &Path, ids: &Range<u32>) -> String {
    let mut text = String::new();
    let count = ids.len();
    let first = ids.start;
    write!(
        text,
        r#"
mod {NAME} {{
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{{AtomicBool, Ordering}};

    enum Order {{ Nothing, Note, Off(u32) }}

    static ORDER: OnceLock<Order> = OnceLock::new();
    static REACHED: [AtomicBool; {count}] = [const {{ AtomicBool::new(false) }}; {count}];

    pub(crate) fn is_off(id: u32) -> bool {{
        match ORDER.get_or_init(read) {{
            Order::Nothing => false,
            Order::Off(off) => *off == id,
            Order::Note => {{
                note(id);
                false
            }}
        }}
    }}

    fn read() -> Order {{
        match std::fs::read_to_string({order:?}) {{
            Ok(text) if text == "note" => Order::Note,
            Ok(text) => text.parse().map_or(Order::Nothing, Order::Off),
            Err(_) => Order::Nothing,
        }}
    }}

    fn note(id: u32) {{
        if REACHED[(id - {first}) as usize].swap(true, Ordering::Relaxed) {{
            return;
        }}
        let mut line = [b'\n'; 11];
        let mut at = 10;
        let mut rest = id;
        loop {{
            at -= 1;
            line[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {{
                break;
            }}
        }}
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open({reached:?}) {{
            let _ = file.write_all(&line[at..]);
        }}
    }}
}}
"#
    )
    .expect("a string takes any text");
    text
}
