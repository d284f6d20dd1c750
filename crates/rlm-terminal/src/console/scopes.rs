//! The handlers of a run's press scopes: pushed when a scope begins, and dropped when it ends. The module `scope` decides the meaning of a press in
//! each scope and knows no handlers.

use std::future::poll_fn;
use std::task::Poll;

use interrupt_stack::{Handler, Interrupts, Notice};

use crate::scope::Scope;

#[derive(Debug)]
pub(super) struct Scopes {
    interrupts: Interrupts,
    /// The scopes from the outermost, which is the run, to the innermost.
    nested: Vec<(Scope, Handler)>,
}

impl Scopes {
    /// Pushes the handler of the run.
    pub(super) fn of_run(interrupts: Interrupts) -> Self {
        let run = (Scope::Run, interrupts.push(Scope::Run.name()));
        Self {
            interrupts,
            nested: vec![run],
        }
    }

    /// Sets the scopes within the run, from the outermost to the innermost. A scope that stays in the same place keeps its handler and that handler's
    /// presses.
    pub(super) fn update_handlers(&mut self, within: impl Iterator<Item = Scope>) {
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

    /// Drops the handlers from this depth on, the innermost first.
    fn end_from(&mut self, depth: usize) {
        while self.nested.len() > depth {
            self.nested.pop();
        }
    }

    /// Waits for a press. Returns its scope: the innermost one, or the next one outwards if a scope declined the press.
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
        scopes.update_handlers(within.iter().copied());
        (interrupts, scopes)
    }

    fn press(interrupts: &Interrupts) {
        interrupts.injector().press(PressSource::Injected);
    }

    #[tokio::test]
    async fn declined_press_goes_from_the_innermost_scope_outwards() {
        let (interrupts, mut scopes) =
            scopes(&[Scope::Turn, Scope::PermissionRequest, Scope::Menu]);
        // The press comes during the wait.
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
        assert_eq!(
            met,
            [
                Scope::Menu,
                Scope::PermissionRequest,
                Scope::Turn,
                Scope::Run
            ]
        );
        assert_eq!(interrupts.cause(), None);
        notice.decline();
        assert!(
            interrupts.cause().is_some(),
            "a press that the run declines is a stop"
        );
    }

    #[tokio::test]
    async fn press_of_an_ended_scope_goes_to_the_enclosing_scope() {
        let (interrupts, mut scopes) = scopes(&[Scope::Turn, Scope::PermissionRequest]);
        press(&interrupts);
        scopes.update_handlers([Scope::Turn].into_iter());
        let (scope, notice) = scopes.notified().await;
        assert_eq!(scope, Scope::Turn);
        notice.handled();
    }

    #[tokio::test]
    async fn continued_scope_keeps_its_press_and_new_scopes_get_handlers_in_order() {
        let (interrupts, mut scopes) = scopes(&[Scope::Turn]);
        press(&interrupts);
        scopes.update_handlers([Scope::Turn, Scope::Draft].into_iter());
        let (scope, notice) = scopes.notified().await;
        assert_eq!(scope, Scope::Turn, "the press came before the draft");
        notice.handled();
        scopes.update_handlers([Scope::RequiredCheck, Scope::Draft].into_iter());
        let now: Vec<_> = scopes.nested.iter().map(|(scope, _)| *scope).collect();
        assert_eq!(now, [Scope::Run, Scope::RequiredCheck, Scope::Draft]);
        let ids: Vec<_> = scopes.nested.iter().map(|(_, it)| it.id()).collect();
        assert!(
            ids.is_sorted(),
            "handlers are pushed in the order of nesting"
        );
    }
}
