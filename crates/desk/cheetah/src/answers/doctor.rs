//! The answer of `doctor`.

use serde::Serialize;

/// The answer of `doctor`: what of this machine works.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Doctor<'a> {
    /// What was looked at.
    pub checks: &'a [Check],
    /// Whether no check failed.
    pub ok: bool,
}

/// One thing that verbs need of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// What was found.
    pub finding: String,
    /// How to mend it, if it can be mended.
    pub mend: Option<String>,
    /// Its name.
    pub name: &'static str,
    /// Whether it works.
    pub state: State,
    /// The verbs that need it.
    pub verbs: &'static [&'static str],
}

/// Whether something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It works.
    Works,
    /// It works within limits, or is not set up; whether that is wrong depends on what the machine is for.
    Note,
    /// It does not work.
    Fails,
    /// It cannot be found out.
    Unknown,
}

impl Check {
    /// A check of what these verbs need, which works.
    pub fn works(name: &'static str, verbs: &'static [&'static str], finding: impl Into<String>) -> Self {
        Self { finding: finding.into(), mend: None, name, state: State::Works, verbs }
    }

    /// The same check with another outcome, and how to mend it.
    pub fn but(self, state: State, mend: impl Into<String>) -> Self {
        Self { state, mend: Some(mend.into()), ..self }
    }
}
