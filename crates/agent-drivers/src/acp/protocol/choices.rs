//! The choices that an agent offers its client: a mode, which sets the actions without a permission request, and a model.
//!
//! There are three mechanisms. New agents have options in categories, and others have modes. Some have models, which never became part of the
//! protocol.

use super::json::{list, text};
use agent_duplex::Permissions;
use serde_json::{Value, json};

/// The choices that the agent offers, and their current values.
#[derive(Debug, Default)]
pub(super) struct SessionChoices {
    modes: Vec<String>,
    mode: String,
    /// Whether the last mode before the current one allows everything.
    allowed_everything: bool,
    has_models: bool,
    model: String,
    /// The model at the beginning.
    default_model: Option<String>,
    mode_option: Option<Choice>,
    model_option: Option<Choice>,
}

#[derive(Debug)]
struct Choice {
    id: String,
    value: String,
    values: Vec<String>,
}

impl Choice {
    fn of(option: &Value) -> Self {
        // Values can be in groups.
        let values =
            list(&option["options"])
                .iter()
                .flat_map(|item| match list(&item["options"]) {
                    [] => std::slice::from_ref(item),
                    group => group,
                });
        Choice {
            id: text(option, "id").to_owned(),
            value: text(option, "currentValue").to_owned(),
            values: values.map(|item| text(item, "value").to_owned()).collect(),
        }
    }
}

/// A request that makes a choice: its method, and its parameters besides the session.
pub(super) type ChoiceRequest = (&'static str, Value);

/// Returns the names of the modes for these permissions, as the known agents use them.
fn modes(permissions: Permissions) -> &'static [&'static str] {
    match permissions {
        Permissions::Ask | Permissions::Deny => &["default", "ask", "read-only"],
        // If the agent has no mode for edits, it must ask for each edit, and the driver allows them.
        Permissions::Edits => &["acceptEdits", "autoEdit", "default", "ask"],
        Permissions::All => &["bypassPermissions", "yolo", "full-access"],
    }
}

impl SessionChoices {
    /// Reads the choices from the answer that opens a session.
    pub(super) fn take(&mut self, opened: &Value) {
        let modes = &opened["modes"];
        let ids = list(&modes["availableModes"]).iter();
        self.modes = ids.map(|mode| text(mode, "id").to_owned()).collect();
        text(modes, "currentModeId").clone_into(&mut self.mode);
        self.has_models = opened["models"].is_object();
        text(&opened["models"], "currentModelId").clone_into(&mut self.model);
        self.take_options(opened);
        self.default_model = Some(self.model.clone()).filter(|model| !model.is_empty());
    }

    /// Reads the current options; returns `true` if the model changed.
    pub(super) fn take_options(&mut self, from: &Value) -> bool {
        let mut changed = false;
        for option in list(&from["configOptions"]) {
            match text(option, "category") {
                "mode" => self.mode_option = Some(Choice::of(option)),
                "model" => {
                    let choice = Choice::of(option);
                    changed = self.model_is(choice.value.clone());
                    self.model_option = Some(choice);
                }
                _ => {}
            }
        }
        changed
    }

    /// Stores the requested model, which the agent accepted; if `answer` names a model, stores that one. Returns `true` if the model changed.
    pub(super) fn model_taken(&mut self, requested: String, answer: &Value) -> bool {
        let before = std::mem::replace(&mut self.model, requested);
        self.take_options(answer);
        self.model != before
    }

    pub(super) fn mode_is(&mut self, mode: &str) {
        mode.clone_into(&mut self.mode);
    }

    /// Stores the current model; returns `true` if it changed.
    fn model_is(&mut self, model: String) -> bool {
        std::mem::replace(&mut self.model, model) != self.model
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    pub(super) fn default_model(&self) -> Option<&str> {
        self.default_model.as_deref()
    }

    /// Returns the request that sets the mode for these permissions; `None` if there is no such mode, or it is set already. The mode counts as set
    /// from now on, because most agents don't report a change that the client requested.
    pub(super) fn choose_mode(&mut self, permissions: Permissions) -> Option<ChoiceRequest> {
        let mut candidates = modes(permissions).iter();
        if let Some(option) = &mut self.mode_option
            && let Some(mode) = candidates.clone().find(|mode| has(&option.values, mode))
        {
            let was = std::mem::replace(&mut option.value, (*mode).to_owned());
            self.allowed_everything = is_free(&was) || (was.is_empty() && self.allowed_everything);
            let choose = json!({"configId": option.id, "value": mode});
            return (was != **mode).then_some(("session/set_config_option", choose));
        }
        let mode = candidates.find(|mode| has(&self.modes, mode))?;
        let was = std::mem::replace(&mut self.mode, (*mode).to_owned());
        self.allowed_everything = is_free(&was) || (was.is_empty() && self.allowed_everything);
        (was != **mode).then(|| ("session/set_mode", json!({"modeId": mode})))
    }

    /// Whether the agent must accept the mode for these permissions. If not, an agent that refuses the mode does no harm: it sends permission
    /// requests, and the driver allows them.
    pub(super) fn requires_mode(&self, permissions: Permissions) -> bool {
        match permissions {
            Permissions::Ask | Permissions::Deny => true,
            Permissions::Edits => self.allowed_everything,
            Permissions::All => false,
        }
    }

    /// Records that it is unknown whether the last requested mode is set; `late` means that the agent can still set that mode.
    pub(super) fn mode_is_unknown(&mut self, late: bool) {
        let option = self.mode_option.as_mut().map(|option| &mut option.value);
        for mode in [Some(&mut self.mode), option].into_iter().flatten() {
            self.allowed_everything |= late && is_free(mode);
            mode.clear();
        }
    }

    /// Returns the request that sets a model; `None` if the agent has no mechanism for it.
    pub(super) fn choose_model(&self, model: &str) -> Option<ChoiceRequest> {
        if let Some(option) = &self.model_option {
            let choose = json!({"configId": option.id, "value": model});
            return Some(("session/set_config_option", choose));
        }
        { self.has_models }.then(|| ("session/set_model", json!({"modelId": model})))
    }
}

fn is_free(mode: &str) -> bool {
    modes(Permissions::All).contains(&mode)
}

fn has(values: &[String], value: &str) -> bool {
    values.iter().any(|known| known == value)
}
