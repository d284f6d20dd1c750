//! The space for tools in a request, which all servers and the other tools share.

use crate::dialect::{RequestSettings, ToolDefinition};

/// The bytes of system prompt and tools for each token of the window: half of it, with four bytes a token. The conversation, and its compaction, need
/// the other half.
const BYTES_PER_TOKEN: u64 = 2;

/// The tools that still fit into a request.
#[derive(Clone, Debug)]
pub(crate) struct ToolBudget {
    pub(super) tools: usize,
    /// Of the names, the descriptions and the schemas.
    pub(super) bytes: usize,
}

impl ToolBudget {
    /// The limits of all tools of an agent. OpenAI takes no more tools.
    pub(super) const WHOLE: Self = Self {
        tools: 128,
        bytes: 256 << 10,
    };

    /// Returns the space beside the system prompt and the tools that are in a request already.
    pub(crate) fn beside(request: &RequestSettings, context_window: u64) -> Self {
        let tools: usize = request.tools.iter().map(ToolDefinition::bytes).sum();
        let window = usize::try_from(context_window.saturating_mul(BYTES_PER_TOKEN));
        let window = window.unwrap_or(usize::MAX);
        let bytes = Self::WHOLE
            .bytes
            .min(window.saturating_sub(request.system.len()));
        Self {
            tools: Self::WHOLE.tools.saturating_sub(request.tools.len()),
            bytes: bytes.saturating_sub(tools),
        }
    }

    /// Takes the space for a tool. Returns whether there is enough.
    pub(super) fn take(&mut self, tool: &ToolDefinition) -> bool {
        let left = (self.tools.checked_sub(1)).zip(self.bytes.checked_sub(tool.bytes()));
        if let Some((tools, bytes)) = left {
            *self = Self { tools, bytes };
        }
        left.is_some()
    }
}
