//! The handlers of the scopes that a run is in: pushed when a scope begins, and dropped when it ends. Apart from `scope`, which decides what a press
//! means in each, and knows no handler.

use std::future::poll_fn;
use std::task::Poll;

use interrupt_stack::{Handler, Interrupts, Notice};

use crate::scope::Scope;

#[derive(Debug)]
pub(super) struct Scopes {
    interrupts: Interrupts,
    /// From the outside in; the run comes first.
    nested: Vec<(Scope, Handler)>,
}

impl Scopes {
    /// Begins with the run.
    pub(super) fn of_run(interrupts: Interrupts) -> Self {
        let run = (Scope::Run, interrupts.push(Scope::Run.name()));
        Self {
            interrupts,
            nested: vec![run],
        }
    }

    /// Has these scopes be in force within the run, from the outside in. One that goes on, in the same place, keeps its handler and what that was told.
    pub(super) fn follow(&mut self, within: impl Iterator<Item = Scope>) {
        let mut at = 1;
        for scope in within {
            if self.nested.get(at).is_none_or(|(now, _)| *now != scope) {
                self.end_from(at);
                let handler = self.interrupts.push(scope.name());
                self.nested.push((scope, handler));
            }
            at += 1;
        }
        self.end_from(at);
    }

    /// Ends the scopes from this depth on, the innermost first.
    fn end_from(&mut self, depth: usize) {
        while self.nested.len() > depth {
            self.nested.pop();
        }
    }

    /// Waits for a press, and says which scope it is for: the innermost one, or one around a scope that declined it.
    ///
    /// Cancel safe.
    pub(super) async fn notified(&mut self) -> (Scope, Notice) {
        let inside_out = self.nested.iter_mut().rev();
        let mut waits: Vec<_> = inside_out
            .map(|(scope, handler)| Box::pin(async { (*scope, handler.notified().await) }))
            .collect();
        poll_fn(|context| {
            let mut polled = waits.iter_mut().map(|wait| wait.as_mut().poll(context));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use interrupt_stack::PressSource;

    use super::*;

    fn scopes(within: &[Scope]) -> (Interrupts, Scopes) {
        let interrupts = Interrupts::builder().detached();
        let mut scopes = Scopes::of_run(interrupts.clone());
        scopes.follow(within.iter().copied());
        (interrupts, scopes)
    }

    fn press(interrupts: &Interrupts) {
        interrupts.injector().press(PressSource::Injected);
    }

    #[tokio::test]
    async fn a_press_meets_the_innermost_scope_and_walks_out_while_it_is_declined() {
        let (interrupts, mut scopes) = scopes(&[Scope::Turn, Scope::Ask, Scope::Menu]);
        // It comes while it is waited for.
        let pressed = async {
            tokio::task::yield_now().await;
            press(&interrupts);
        };
        let ((innermost, mut notice), ()) = tokio::join!(scopes.notified(), pressed);
        let mut met = vec![innermost];
        while met.len() < 4 {
            notice.decline();
            let (scope, next) = scopes.notified().await;
            met.push(scope);
            notice = next;
        }
        assert_eq!(met, [Scope::Menu, Scope::Ask, Scope::Turn, Scope::Run]);
        assert_eq!(interrupts.cause(), None);
        notice.decline();
        assert!(interrupts.cause().is_some(), "around the run it is a stop");
    }

    #[tokio::test]
    async fn a_press_whose_scope_ended_before_it_was_taken_is_for_the_one_around_it() {
        let (interrupts, mut scopes) = scopes(&[Scope::Turn, Scope::Ask]);
        press(&interrupts);
        scopes.follow([Scope::Turn].into_iter());
        let (scope, notice) = scopes.notified().await;
        assert_eq!(scope, Scope::Turn);
        notice.handled();
    }

    #[tokio::test]
    async fn a_scope_that_goes_on_keeps_its_press_and_one_in_another_step_begins_anew() {
        let (interrupts, mut scopes) = scopes(&[Scope::Turn]);
        press(&interrupts);
        scopes.follow([Scope::Turn, Scope::Draft].into_iter());
        let (scope, notice) = scopes.notified().await;
        assert_eq!(scope, Scope::Turn, "it came before the draft");
        notice.handled();
        scopes.follow([Scope::Gate, Scope::Draft].into_iter());
        let now: Vec<_> = scopes.nested.iter().map(|(scope, _)| *scope).collect();
        assert_eq!(now, [Scope::Run, Scope::Gate, Scope::Draft]);
        let ids: Vec<_> = scopes.nested.iter().map(|(_, it)| it.id()).collect();
        assert!(ids.is_sorted(), "the order of pushing is that of nesting");
    }
}
