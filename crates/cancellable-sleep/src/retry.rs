//! The gate as `backon`'s sleeper, so that a shutdown ends a back-off as it ends any wait.

use std::time::Duration;

use crate::{Sleep, SleepGate};

impl backon::Sleeper for SleepGate {
    type Sleep = Sleep;

    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep(duration)
    }
}

impl backon::BlockingSleeper for SleepGate {
    fn sleep(&self, duration: Duration) {
        // backon has no use for the reason; the caller's `when` asks the gate.
        let _why = self.blocking_sleep(duration);
    }
}
