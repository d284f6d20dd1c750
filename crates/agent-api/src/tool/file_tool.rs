//! The parts that the tools for files share. `read`, `grep` and `glob` read, `write` and `edit` change one file; both judge the path of a call.

use std::fmt::Debug;
use std::path::Path;

use agent_duplex::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::files::{self, Target};
use super::interface::{make_prepared, summary_of};
use super::{Access, FileChange, Prepared, Tool, ToolContext, ToolOutput, WorkingDirectory};
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;

/// A tool that works on one path.
pub(super) trait FileTool: Debug + Send + Sync {
    const NAME: &'static str;
    const DESCRIPTION: &'static str;
    const SCHEMA: &'static str;
    /// The argument that people see as the summary of a call.
    const SUMMARY: &'static str;

    type Call: Send + 'static;

    /// Parses the arguments of a call.
    ///
    /// # Errors
    ///
    /// The result of the call.
    fn parse(arguments: &JsonObject) -> Result<Self::Call, ToolOutput>;

    fn path(call: &Self::Call) -> &str;
}

/// A tool that only reads.
pub(super) trait Reader: FileTool {
    /// Runs a call on its resolved path. It can block.
    ///
    /// # Errors
    ///
    /// The result of a call that failed.
    fn read(
        call: &Self::Call,
        path: &Path,
        context: &ToolContext,
        cancel: &CancellationToken,
    ) -> Result<ToolOutput, ToolOutput>;
}

/// A tool that changes one file.
pub(super) trait Changer: FileTool {
    /// The largest file that it changes, in bytes.
    const MAX_BYTES: u64;

    /// Prepares the change of a call, without any effect.
    ///
    /// # Errors
    ///
    /// The result of a call that failed.
    fn change(
        call: Self::Call,
        target: Target,
        directory: &WorkingDirectory,
    ) -> Result<FileChange, ToolOutput>;
}

/// The [`Tool`] of a [`Reader`].
#[derive(Debug)]
pub(super) struct Reading<T>(pub(super) T);

/// The [`Tool`] of a [`Changer`].
#[derive(Debug)]
pub(super) struct Changing<T>(pub(super) T);

fn definition<T: FileTool>() -> ToolDefinition {
    ToolDefinition {
        name: T::NAME.to_owned(),
        description: T::DESCRIPTION.to_owned(),
        schema: JsonObject::parse(T::SCHEMA).expect("the schema is an object"),
    }
}

/// Returns what a call needs. A call with wrong arguments fails without an effect, so it needs the `least`.
fn access<T: FileTool>(
    arguments: &JsonObject,
    context: &ToolContext,
    judge: files::Judge,
    least: Access,
) -> Access {
    let call = T::parse(arguments).ok();
    let resolved = call.and_then(|call| context.directory.resolve(T::path(&call)).ok());
    resolved.map_or(least, |resolved| judge(&resolved, &context.directory))
}

impl<T: Reader> Tool for Reading<T> {
    fn definition(&self) -> ToolDefinition {
        definition::<T>()
    }

    fn access(&self, arguments: &JsonObject, context: &ToolContext) -> Access {
        access::<T>(arguments, context, files::to_read, Access::Reads)
    }

    fn summary(&self, arguments: &JsonObject) -> String {
        summary_of(T::SUMMARY, arguments)
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async {
            let call = match T::parse(arguments) {
                Ok(call) => call,
                Err(wrong) => return wrong,
            };
            let used = context.clone();
            files::blocking(context, move |cancel| {
                let path = files::resolve(T::path(&call), &used, files::to_read)?;
                T::read(&call, &path, &used, cancel)
            })
            .await
            .unwrap_or_else(|failed| failed)
        })
    }
}

impl<T: Changer> Tool for Changing<T> {
    fn definition(&self) -> ToolDefinition {
        definition::<T>()
    }

    fn access(&self, arguments: &JsonObject, context: &ToolContext) -> Access {
        access::<T>(arguments, context, files::to_change, Access::Edits)
    }

    fn summary(&self, arguments: &JsonObject) -> String {
        summary_of(T::SUMMARY, arguments)
    }

    fn prepare<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, Result<Prepared, ToolOutput>> {
        Box::pin(async {
            let call = T::parse(arguments)?;
            let used = context.clone();
            files::blocking(context, move |cancel| {
                let target = files::target(T::path(&call), T::MAX_BYTES, &used, cancel)?;
                let change = T::change(call, target, &used.directory)?;
                Ok(Prepared::Change(change.known_in(&used.files)))
            })
            .await
        })
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(make_prepared(self, arguments, context))
    }
}
