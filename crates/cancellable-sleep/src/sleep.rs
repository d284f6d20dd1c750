//! The future of a sleep: a sleeper, and a timer or repeated checks of the time of day.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::SystemTime,
};

use pin_project_lite::pin_project;
use tokio::{task::coop, time::Instant};

use crate::{
    Wake,
    sleeper::{Shared, Sleeper},
    wall_clock::{self, WallClock},
};

pin_project! {
    /// A sleep at a [`SleepGate`](crate::SleepGate), made by [`sleep`](crate::SleepGate::sleep),
    /// [`sleep_until`](crate::SleepGate::sleep_until) and [`sleep_until_wall`](crate::SleepGate::sleep_until_wall).
    ///
    /// The future owns a handle on the gate, so it can be spawned and stored in a structure. If it is polled again after it was ready, it
    /// is a new sleep to the same deadline. After [`Wake::Woken`] it waits for the rest of the time ("check for work, then wait for the rest").
    /// After [`Wake::Elapsed`] it yields once and returns the same again. After [`Wake::Shutdown`] it returns the same at once.
    ///
    /// A sleep that is ready uses tokio's cooperative budget. So a loop that ignores the reason lets other tasks run, even if no sleep
    /// waits any more.
    ///
    /// # Panics
    ///
    /// Polling panics outside of a tokio runtime with its time driver, if the sleep needs a timer. It needs none if the gate is shut
    /// down, if the time is up, or if the time is too far away for the clock. A waiting sleep belongs to the runtime that first polled
    /// it: once that runtime is dropped, polling panics in any other runtime too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the sleep and removes the sleeper from the gate. Nothing is lost, because its only state is the deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{pin::pin, time::Duration};
    /// use cancellable_sleep::{SleepGate, Wake};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let gate = SleepGate::new();
    /// let mut sleep = pin!(gate.sleep(Duration::from_millis(5)));
    /// let why = loop {
    ///     match sleep.as_mut().await {
    ///         Wake::Woken => continue, // check for work, then wait for the rest
    ///         why => break why,
    ///     }
    /// };
    /// assert_eq!(why, Wake::Elapsed);
    /// # }
    /// ```
    #[derive(Debug)]
    #[must_use = "a sleep does nothing unless it is awaited"]
    pub struct Sleep {
        #[pin]
        sleeper: Sleeper,
        #[pin]
        until: Until,
    }

    impl PinnedDrop for Sleep {
        fn drop(this: Pin<&mut Self>) {
            if this.until.is_registered() {
                this.sleeper.unregister();
            }
        }
    }
}

pin_project! {
    /// The time that a sleep waits for, and whether the sleeper is registered. Only a time of day needs a box, so this enum is only
    /// as large as tokio's timer.
    #[derive(Debug)]
    #[project = UntilProjection]
    pub(crate) enum Until {
        /// A time that is too far away for the clock.
        Never { is_registered: bool },
        /// A deadline without a timer: the sleep has not begun, or it began after the deadline.
        At { deadline: Instant, is_registered: bool },
        /// A timer of a sleeper that is registered.
        Timer {
            #[pin]
            timer: tokio::time::Sleep,
        },
        Wall {
            deadline: SystemTime,
            timer: Option<Pin<Box<tokio::time::Sleep>>>,
            is_registered: bool,
        },
    }
}

impl Sleep {
    pub(crate) fn new(shared: Arc<Shared>, until: Until) -> Self {
        Self {
            sleeper: Sleeper::new(shared),
            until,
        }
    }
}

impl Future for Sleep {
    type Output = Wake;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wake> {
        let mut this = self.project();
        let begins = !this.until.is_registered();
        let over = if begins {
            this.until.as_mut().set_registered(true);
            this.sleeper.as_mut().register(cx.waker())
        } else {
            this.sleeper.as_mut().keep_waiting(cx.waker())
        };
        let why = match over {
            Some(why) => {
                // This sleep doesn't wait, so it uses tokio's budget: a loop over such sleeps must let other tasks run. If the budget is used
                // up, a later poll returns the same reason.
                ready!(coop::poll_proceed(cx)).made_progress();
                why
            }
            None => {
                let timed = ready!(this.until.as_mut().poll(cx, &this.sleeper.shared().wall));
                if begins && !timed {
                    // Yield once, so that a loop over deadlines in the past lets other tasks run.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                this.sleeper.elapse()
            }
        };
        this.until.set_registered(false);
        Poll::Ready(why)
    }
}

impl Until {
    pub(crate) fn at(deadline: Option<Instant>) -> Self {
        let registered = false;
        deadline.map_or(
            Self::Never {
                is_registered: registered,
            },
            |deadline| Self::At {
                deadline,
                is_registered: registered,
            },
        )
    }

    pub(crate) fn at_wall(deadline: SystemTime) -> Self {
        Self::Wall {
            deadline,
            timer: None,
            is_registered: false,
        }
    }

    fn is_registered(&self) -> bool {
        match self {
            Self::Never {
                is_registered: registered,
            }
            | Self::At {
                is_registered: registered,
                ..
            }
            | Self::Wall {
                is_registered: registered,
                ..
            } => *registered,
            Self::Timer { .. } => true,
        }
    }

    fn set_registered(mut self: Pin<&mut Self>, whether: bool) {
        match self.as_mut().project() {
            UntilProjection::Never {
                is_registered: registered,
            }
            | UntilProjection::At {
                is_registered: registered,
                ..
            }
            | UntilProjection::Wall {
                is_registered: registered,
                ..
            } => *registered = whether,
            UntilProjection::Timer { timer } => {
                let (deadline, registered) = (timer.deadline(), whether);
                self.set(Self::At {
                    deadline,
                    is_registered: registered,
                });
            }
        }
    }

    /// Waits until the time is up. Returns whether there was a timer.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>, wall: &WallClock) -> Poll<bool> {
        loop {
            match self.as_mut().project() {
                UntilProjection::Never { .. } => return Poll::Pending,
                UntilProjection::At { deadline, .. } if *deadline <= Instant::now() => {
                    return Poll::Ready(false);
                }
                UntilProjection::At { deadline, .. } => {
                    let timer = timer(*deadline);
                    self.set(Self::Timer { timer });
                }
                UntilProjection::Timer { timer } => return timer.poll(cx).map(|()| true),
                UntilProjection::Wall {
                    deadline, timer, ..
                } => {
                    if let Some(timer) = timer {
                        ready!(timer.as_mut().poll(cx));
                    }
                    let Some(nap) = wall_clock::next_check(wall.now(), *deadline) else {
                        return Poll::Ready(timer.is_some());
                    };
                    *timer = Some(Box::pin(self::timer(Instant::now() + nap)));
                }
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only plain sleep: a gate can wake it"
)]
fn timer(deadline: Instant) -> tokio::time::Sleep {
    tokio::time::sleep_until(deadline)
}
