//! The decision to compact a history, and the plan of a compaction: old output of tools goes first, then a summary replaces old items. The texts of the
//! user and the latest items stay. `prompt` writes the request for the summary.

mod prompt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::history::{
    Arguments, AssistantMessage, AssistantPart, History, Item, Summary, ThinkingProof, ToolResult,
};

/// The settings of a compaction. All sizes are in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The context window of the model.
    pub window: u64,
    /// The part of the window that stays free for the next response.
    pub reserve: u64,
    /// The part at the end of the history that stays as it is.
    pub keep_recent: u64,
    /// The tokens of the system prompt and the tools.
    pub overhead: u64,
}

impl CompactionSettings {
    /// Returns the settings for a window: a reserve of 16,000 tokens and 20,000 recent tokens, but at most a quarter of the window each.
    #[must_use]
    pub fn for_window(window: u64) -> Self {
        Self {
            window,
            reserve: (window / 4).min(16_000),
            keep_recent: (window / 4).min(20_000),
            overhead: 0,
        }
    }

    /// Returns the number of tokens above which a compaction is due.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.window.saturating_sub(self.reserve)
    }

    /// Returns whether the history is too large for the next call.
    #[must_use]
    pub fn is_due(&self, history: &History) -> bool {
        self.estimate(history) > self.limit()
    }

    /// Estimates the tokens of the next request: the server's last number, and a quarter of the bytes that came after it.
    #[must_use]
    pub fn estimate(&self, history: &History) -> u64 {
        let mut after = 0;
        for item in history.items().iter().rev() {
            if let Item::Assistant(AssistantMessage {
                context_tokens: Some(tokens),
                ..
            }) = item
            {
                return tokens.saturating_add(after);
            }
            after += tokens(item);
        }
        self.overhead.saturating_add(after)
    }

    /// Plans a compaction. `None` means that nothing can be removed.
    ///
    /// Call it when a compaction [is due](Self::is_due), or when the server says that the conversation is too long. If a plan without summary is
    /// not enough, the next plan has one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::History`](crate::ErrorKind::History) if a call has no result.
    pub fn plan(&self, history: &History) -> Result<Option<CompactionPlan>, Error> {
        if history.open_calls().next().is_some() {
            return Err(Error::history(
                "a compaction must wait for the results of all calls",
            ));
        }
        let items = history.items();
        let mut plan = CompactionPlan {
            items: items.len(),
            emptied: Vec::new(),
            summarised: 0,
            tokens_before: self.estimate(history),
            tokens_after: 0,
        };
        // From the end: the tokens behind each item.
        let mut behind = 0_u64;
        for (index, item) in items.iter().enumerate().rev() {
            let is_recent = behind < self.keep_recent;
            behind += tokens(item);
            match item {
                Item::ToolResult(result) if !is_recent && result.text.len() > EMPTIED.len() => {
                    plan.emptied.push(index);
                }
                _ => {}
            }
            let begins_group = !matches!(item, Item::ToolResult(_) | Item::ToolStarted(_));
            if behind >= self.keep_recent && begins_group && plan.summarised == 0 {
                plan.summarised = index;
            }
        }
        plan.emptied.reverse();
        let with_summary = std::mem::take(&mut plan.summarised);
        plan.tokens_after = self.after(items, &plan);
        if !plan.emptied.is_empty() && plan.tokens_after <= self.limit() / 2 {
            return Ok(Some(plan));
        }
        let mut old = items[..with_summary].iter();
        if old.any(|item| !matches!(item, Item::User(_) | Item::Summary(_))) {
            plan.summarised = with_summary;
            plan.emptied.retain(|index| *index >= with_summary);
            plan.tokens_after = self.after(items, &plan);
        }
        Ok((!plan.emptied.is_empty() || plan.needs_summary()).then_some(plan))
    }

    fn after(&self, items: &[Item], plan: &CompactionPlan) -> u64 {
        let kept = items.iter().enumerate().map(|(index, item)| match item {
            item if plan.drops(index, item) => 0,
            Item::ToolResult(result) if plan.empties(index) => {
                result_tokens(&result.call_id, EMPTIED)
            }
            item => tokens(item),
        });
        let summary = if plan.needs_summary() {
            SUMMARY_TOKENS
        } else {
            0
        };
        self.overhead + summary + kept.sum::<u64>()
    }
}

/// The expected length of a summary, in tokens.
const SUMMARY_TOKENS: u64 = 2_000;

/// The text that replaces the output of a tool.
const EMPTIED: &str = "[output removed to save space; run the tool again if you need it]";

/// The largest number of files in a summary.
const MAX_FILES: usize = 200;

/// The arguments of tools that name a file.
const FILE_ARGUMENTS: [&str; 2] = ["path", "file_path"];

/// The parts of a history that a compaction replaces. It is plain data: a program saves it with the summary, and applies both again after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionPlan {
    /// The length of the planned history, in items.
    items: usize,
    /// The results that lose their text, by index.
    emptied: Vec<usize>,
    /// The items before this index are replaced by a summary, except those of the user.
    summarised: usize,
    /// The estimate before the compaction.
    tokens_before: u64,
    /// The estimate after it.
    tokens_after: u64,
}

impl CompactionPlan {
    /// Returns whether the compaction needs a summary.
    #[must_use]
    pub const fn needs_summary(&self) -> bool {
        self.summarised > 0
    }

    /// Returns the estimate before the compaction, in tokens.
    #[must_use]
    pub const fn tokens_before(&self) -> u64 {
        self.tokens_before
    }

    /// Returns the estimate after the compaction, in tokens. It can be larger than the limit: then the user's messages alone are too long.
    #[must_use]
    pub const fn tokens_after(&self) -> u64 {
        self.tokens_after
    }

    /// Returns the text that asks a model for the summary. It contains the replaced items, shortened to `max_bytes` in all.
    ///
    /// Send it as the only message of a history of its own: the conversation itself may be too long for the model.
    #[must_use]
    pub fn summary_prompt(&self, history: &History, max_bytes: usize) -> String {
        let old = history.items().get(..self.summarised).unwrap_or_default();
        prompt::summary_prompt(old, max_bytes)
    }

    /// Returns the compacted history.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::History`](crate::ErrorKind::History) if the plan is for another history, or if it needs a summary and there is none.
    pub fn apply(&self, history: &History, summary: Option<&str>) -> Result<History, Error> {
        let items = history.items();
        if items.len() != self.items || self.summarised > self.items {
            return Err(Error::history("the plan is for another history"));
        }
        let summary = match summary.map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) if self.needs_summary() => Some(Item::Summary(Summary {
                text: text.to_owned(),
                files: files(&items[..self.summarised]),
            })),
            None if self.needs_summary() => {
                return Err(Error::history("the compaction needs a summary"));
            }
            _ => None,
        };
        let mut compacted = Vec::new();
        for (index, item) in items.iter().enumerate() {
            if index == self.summarised {
                compacted.extend(summary.clone());
            }
            if !self.drops(index, item) {
                compacted.push(self.kept(index, item));
            }
        }
        if self.summarised == items.len() {
            compacted.extend(summary);
        }
        History::from_items(compacted)
    }

    fn drops(&self, index: usize, item: &Item) -> bool {
        index < self.summarised && !matches!(item, Item::User(_))
    }

    fn empties(&self, index: usize) -> bool {
        self.emptied.binary_search(&index).is_ok()
    }

    fn kept(&self, index: usize, item: &Item) -> Item {
        match item {
            Item::ToolResult(result) if self.empties(index) => Item::ToolResult(ToolResult {
                text: EMPTIED.to_owned(),
                ..result.clone()
            }),
            // The server's number includes the removed items.
            Item::Assistant(message) => Item::Assistant(AssistantMessage {
                context_tokens: None,
                ..message.clone()
            }),
            item => item.clone(),
        }
    }
}

/// Estimates the tokens of an item: a quarter of its bytes.
fn tokens(item: &Item) -> u64 {
    let bytes = match item {
        Item::User(user) => user.text.len(),
        Item::Summary(summary) => {
            summary.text.len() + summary.files.iter().map(|it| it.len() + 1).sum::<usize>()
        }
        Item::Assistant(message) => message.parts.iter().map(bytes).sum(),
        Item::ToolStarted(_) => 0,
        Item::ToolResult(result) => return result_tokens(&result.call_id, &result.text),
    };
    (bytes as u64).div_ceil(4)
}

fn result_tokens(call_id: &str, text: &str) -> u64 {
    ((call_id.len() + text.len()) as u64).div_ceil(4)
}

fn bytes(part: &AssistantPart) -> usize {
    match part {
        AssistantPart::Text(text) => text.text.len(),
        AssistantPart::Thinking(thinking) => match &thinking.proof {
            ThinkingProof::None => 0,
            ThinkingProof::Signature(proof) => thinking.text.len() + proof.len(),
            ThinkingProof::Redacted(proof) | ThinkingProof::Encrypted { content: proof, .. } => {
                proof.len()
            }
        },
        AssistantPart::ToolCall(call) => {
            call.id.len() + call.name.len() + call.raw_arguments().len()
        }
    }
}

/// Returns the files that these items touched, the latest last.
fn files(items: &[Item]) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let mut touch = |file: String| {
        files.retain(|other| *other != file);
        files.push(file);
    };
    for item in items {
        match item {
            Item::Summary(summary) => summary.files.iter().cloned().for_each(&mut touch),
            Item::Assistant(message) => {
                for call in message.calls() {
                    if let Arguments::Object(object) = &call.arguments {
                        let file = FILE_ARGUMENTS.iter().find_map(|key| object.string(key));
                        file.into_iter().for_each(&mut touch);
                    }
                }
            }
            _ => {}
        }
    }
    let surplus = files.len().saturating_sub(MAX_FILES);
    files.split_off(surplus)
}
