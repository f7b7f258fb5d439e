//! What the trace shows of an answer (pure).

use crate::contract::{AccountInfo, CommandOutput, Instance, Region, Resource, Usage, Zone};

/// An answer of a driver.
pub(super) trait Outcome {
    /// A few words, without what users have written. The log quotes them.
    fn outcome(&self) -> String;
}

impl Outcome for () {
    fn outcome(&self) -> String {
        "success".to_owned()
    }
}

impl<T> Outcome for Vec<T> {
    fn outcome(&self) -> String {
        format!("{} found", self.len())
    }
}

impl Outcome for Instance {
    fn outcome(&self) -> String {
        format!("{} is {}", self.id, self.state.word())
    }
}

impl Outcome for AccountInfo {
    fn outcome(&self) -> String {
        self.id.clone()
    }
}

impl Outcome for Region {
    fn outcome(&self) -> String {
        self.id.clone()
    }
}

impl Outcome for Zone {
    fn outcome(&self) -> String {
        self.id.clone()
    }
}

impl Outcome for Resource {
    fn outcome(&self) -> String {
        self.id.clone()
    }
}

impl Outcome for Usage {
    fn outcome(&self) -> String {
        "success".to_owned()
    }
}

impl Outcome for CommandOutput {
    fn outcome(&self) -> String {
        format!("exit code {}", self.exit_code)
    }
}
