//! The future of a sleep: a seat and a timer, or looks at the time of day, and what it answers when several of them end it.

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
    seat::{Seat, Shared},
    wall::{self, WallClock},
};

pin_project! {
    /// A sleep at a [`SleepGate`](crate::SleepGate), made by [`sleep`](crate::SleepGate::sleep),
    /// [`sleep_until`](crate::SleepGate::sleep_until) and [`sleep_until_wall`](crate::SleepGate::sleep_until_wall).
    ///
    /// It owns its share of the gate, so that it can be spawned and kept in a structure. Polled again after an answer it is a new
    /// sleep to the same deadline: after [`Wake::Kicked`] it sleeps on ("look whether there is something to do, then wait for what is
    /// left"), after [`Wake::Elapsed`] it yields once and says so again, after [`Wake::Shutdown`] it says so at once.
    ///
    /// A sleep that is ready takes of tokio's cooperative budget, so that a loop that doesn't look at the answer lets others run
    /// even where no sleep waits any more.
    ///
    /// # Panics
    ///
    /// Polling panics outside a tokio runtime with its time driver where a timer is needed: not if the gate is shut down, the time
    /// is up, or it is too far away ever to come. A sleep that waits belongs to the runtime that it was first polled in: once that is
    /// dropped, polling panics in another one, too.
    ///
    /// # Cancel safety
    ///
    /// Dropping it ends the sleep and takes the sleeper off the gate; nothing is lost, since there is no state but the deadline.
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
    ///         Wake::Kicked => continue, // look what is new, then wait for the rest
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
        seat: Seat,
        #[pin]
        until: Until,
    }

    impl PinnedDrop for Sleep {
        fn drop(this: Pin<&mut Self>) {
            if this.until.has_entered() {
                this.seat.leave();
            }
        }
    }
}

pin_project! {
    /// What a sleep waits for, and whether it has entered its seat. Only the time of day pays for a box: all of this is as large as
    /// tokio's timer alone.
    #[derive(Debug)]
    #[project = UntilProjection]
    pub(crate) enum Until {
        /// A time further away than the clock can say.
        Never { entered: bool },
        /// A deadline without a timer: the sleep has not begun, or the deadline had passed when it did.
        At { deadline: Instant, entered: bool },
        /// Entered.
        Timer {
            #[pin]
            timer: tokio::time::Sleep,
        },
        Wall {
            deadline: SystemTime,
            timer: Option<Pin<Box<tokio::time::Sleep>>>,
            entered: bool,
        },
    }
}

impl Sleep {
    pub(crate) fn new(shared: Arc<Shared>, until: Until) -> Self {
        Self {
            seat: Seat::new(shared),
            until,
        }
    }
}

impl Future for Sleep {
    type Output = Wake;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Wake> {
        let mut this = self.project();
        let begins = !this.until.has_entered();
        let over = if begins {
            this.until.as_mut().set_entered(true);
            this.seat.as_mut().enter(cx.waker())
        } else {
            this.seat.as_mut().stay(cx.waker())
        };
        let why = match over {
            Some(why) => {
                // At a gate that is shut nobody waits, and a loop must not keep others from running. Asked again it is the same.
                ready!(coop::poll_proceed(cx)).made_progress();
                why
            }
            None => {
                let timed = ready!(this.until.as_mut().poll(cx, &this.seat.shared().wall));
                if begins && !timed {
                    // A loop over times that have passed must not keep others from running.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                this.seat.elapse()
            }
        };
        this.until.set_entered(false);
        Poll::Ready(why)
    }
}

impl Until {
    pub(crate) fn at(deadline: Option<Instant>) -> Self {
        let entered = false;
        deadline.map_or(Self::Never { entered }, |deadline| Self::At {
            deadline,
            entered,
        })
    }

    pub(crate) fn at_wall(deadline: SystemTime) -> Self {
        Self::Wall {
            deadline,
            timer: None,
            entered: false,
        }
    }

    fn has_entered(&self) -> bool {
        match self {
            Self::Never { entered } | Self::At { entered, .. } | Self::Wall { entered, .. } => {
                *entered
            }
            Self::Timer { .. } => true,
        }
    }

    fn set_entered(mut self: Pin<&mut Self>, whether: bool) {
        match self.as_mut().project() {
            UntilProjection::Never { entered }
            | UntilProjection::At { entered, .. }
            | UntilProjection::Wall { entered, .. } => *entered = whether,
            UntilProjection::Timer { timer } => {
                let (deadline, entered) = (timer.deadline(), whether);
                self.set(Self::At { deadline, entered });
            }
        }
    }

    /// Says whether there was a timer, once the time is up.
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
                    let Some(nap) = wall::nap(wall.now(), *deadline) else {
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
    reason = "this is the one place where a plain sleep is made wakeable"
)]
fn timer(deadline: Instant) -> tokio::time::Sleep {
    tokio::time::sleep_until(deadline)
}
