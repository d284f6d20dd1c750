//! A tool from a function: the schema comes from the type of its argument.

use std::fmt;
use std::marker::PhantomData;

use agent_duplex::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{Access, Tool, ToolContext, ToolOutput};
use crate::dialect::ToolDefinition;
use crate::json::JsonObject;

/// A tool from an async function with one argument.
///
/// If the arguments of a call don't fit the type, the model gets the error and the schema.
///
/// ```
/// use agent_api::FunctionTool;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Sum {
///     /// The numbers to add.
///     numbers: Vec<i64>,
/// }
///
/// let add = FunctionTool::new("add", "Adds numbers.", |sum: Sum| async move {
///     let total: i64 = sum.numbers.iter().sum();
///     Ok(total.to_string())
/// })
/// .only_reads();
/// ```
pub struct FunctionTool<A, F> {
    definition: ToolDefinition,
    run: F,
    only_reads: bool,
    argument: PhantomData<fn(A)>,
}

impl<A, F, R> FunctionTool<A, F>
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A) -> R + Send + Sync,
    R: Future<Output = Result<String, String>> + Send,
{
    /// Creates a tool. The function returns the text for the model, or the text of a failure.
    ///
    /// # Panics
    ///
    /// Panics if the argument is no object in JSON: it must be a struct or a map.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, run: F) -> Self {
        let schema = serde_json::to_string(&schemars::schema_for!(A));
        let schema = schema.expect("a schema is JSON");
        assert!(
            schema.contains(r#""type":"object""#),
            "the argument of a tool must be a struct"
        );
        Self {
            definition: ToolDefinition {
                name: name.into(),
                description: description.into(),
                schema: JsonObject::parse(&schema).expect("a schema is an object"),
            },
            run,
            only_reads: false,
            argument: PhantomData,
        }
    }

    /// Declares that the function changes nothing: a call needs no permission, and a crash during a call is not reported as an unknown outcome.
    #[must_use]
    pub fn only_reads(mut self) -> Self {
        self.only_reads = true;
        self
    }
}

impl<A, F, R> Tool for FunctionTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send,
    F: Fn(A) -> R + Send + Sync,
    R: Future<Output = Result<String, String>> + Send,
{
    fn definition(&self) -> ToolDefinition {
        self.definition.clone()
    }

    fn access(&self, _: &JsonObject, _: &ToolContext) -> Access {
        match self.only_reads {
            true => Access::Reads,
            false => Access::Anything {
                reason: String::new(),
            },
        }
    }

    fn only_reads(&self) -> bool {
        self.only_reads
    }

    fn run<'a>(
        &'a self,
        arguments: &'a JsonObject,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let argument = match serde_json::from_str(arguments.as_str()) {
                Ok(argument) => argument,
                Err(error) => {
                    let schema = self.definition.schema.as_str();
                    let text = format!("wrong arguments: {error}; they must fit {schema}");
                    return ToolOutput::failed(text);
                }
            };
            tokio::select! {
                result = (self.run)(argument) => match result {
                    Ok(text) => ToolOutput::ok(text),
                    Err(text) => ToolOutput::failed(text),
                },
                () = context.cancel.cancelled() => ToolOutput::failed("cancelled"),
            }
        })
    }
}

impl<A, F> fmt::Debug for FunctionTool<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool")
            .field("name", &self.definition.name)
            .field("only_reads", &self.only_reads)
            .finish_non_exhaustive()
    }
}
