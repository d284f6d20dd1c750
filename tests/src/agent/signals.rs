//! Logs every signal that a fake agent gets, then performs the signal's default action.

use std::path::PathBuf;
use std::{io, thread};

use signal_hook::consts as sig;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::emulate_default_handler;

use super::record;

const WATCHED: [i32; 9] = [
    sig::SIGHUP,
    sig::SIGINT,
    sig::SIGQUIT,
    sig::SIGUSR1,
    sig::SIGUSR2,
    sig::SIGALRM,
    sig::SIGTERM,
    sig::SIGCONT,
    sig::SIGTSTP,
];

/// Signals that are caught and held until the actions for them are known.
pub(super) struct CaughtSignals(SignalsInfo<WithRawSiginfo>);

/// Catches signals from now on.
pub(super) fn catch() -> io::Result<CaughtSignals> {
    // Raw information, because the plain iterator merges equal signals in quick succession.
    SignalsInfo::new(WATCHED).map(CaughtSignals)
}

impl CaughtSignals {
    /// Logs every signal and obeys all but `ignored`, on a thread that lives as long as the process.
    pub(super) fn obey(self, dir: PathBuf, start: u32, ignored: Vec<i32>) {
        self.hand(dir, start, ignored, |signal| {
            let _died = emulate_default_handler(signal);
        });
    }

    /// Logs every signal, and passes it to `act`.
    pub(super) fn hand(
        self,
        dir: PathBuf,
        start: u32,
        ignored: Vec<i32>,
        mut act: impl FnMut(i32) + Send + 'static,
    ) {
        let mut signals = self.0;
        thread::spawn(move || {
            for info in &mut signals {
                let signal = info.si_signo;
                // A failure to write the record must not block the signal's action.
                let _logged = record::log_signal(&dir, start, signal);
                if !ignored.contains(&signal) {
                    act(signal);
                }
            }
        });
    }
}
