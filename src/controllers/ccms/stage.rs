//! The stages of the inputs of a `CloudControllerManager`, from unvalidated to accepted or refused (pure, except for reads of the
//! watches).

use crate::{
    controllers::{diagnoser::NodeCounts, observer::Observer},
    object::Object,
    plan::kubernetes::{
        sources::{InputProblem, SourceState},
        validation::Validation,
    },
};

/// The reason of a `CloudControllerManager` that another one excludes.
const CONFLICT: &str = "Conflict";

/// The stage of the inputs. A changed input leads back to [`Stage::Unvalidated`].
#[derive(Default)]
pub(super) enum Stage {
    /// The inputs are not validated: one has changed, or has not been seen yet.
    #[default]
    Unvalidated,
    /// The inputs are validated. If they are good, the change to their plan is not decided yet, because the running workload has not been
    /// seen.
    Validated(Inputs),
    /// The change to their plan is accepted.
    Accepted(Inputs),
    /// The change to their plan is refused on these grounds. The validation has the problem instead of the plan.
    ChangeRefused(Inputs, Box<Grounds>),
    /// Another `CloudControllerManager` excludes this one. The next replan validates the inputs again, because the other one may be gone
    /// by then.
    Excluded(Validation),
}

/// Validated inputs.
pub(super) struct Inputs {
    validation: Validation,
    /// The state of each named object at the time of the validation.
    seen: Vec<SourceState>,
}

impl Stage {
    pub(super) fn validated(validation: Validation, seen: Vec<SourceState>) -> Self {
        Self::Validated(Inputs { validation, seen })
    }

    pub(super) fn excluded(problem: String) -> Self {
        Self::Excluded(Validation::refused(CONFLICT, problem))
    }

    pub(super) fn validation(&self) -> Option<&Validation> {
        match self {
            Self::Unvalidated => None,
            Self::Validated(inputs) | Self::Accepted(inputs) | Self::ChangeRefused(inputs, _) => {
                Some(&inputs.validation)
            }
            Self::Excluded(validation) => Some(validation),
        }
    }

    /// The planned objects, unless an input is bad or the change is refused.
    pub(super) fn planned(&self) -> Option<&[Object]> {
        self.validation()?.objects.as_deref()
    }

    /// Whether the inputs are validated, and the named objects were in this state then.
    pub(super) fn is_current(&self, seen: &[SourceState]) -> bool {
        match self {
            Self::Validated(inputs) | Self::Accepted(inputs) | Self::ChangeRefused(inputs, _) => inputs.seen == seen,
            Self::Unvalidated | Self::Excluded(_) => false,
        }
    }

    /// Accepts the change of validated inputs.
    pub(super) fn accept(&mut self) {
        *self = match std::mem::take(self) {
            Self::Validated(inputs) => Self::Accepted(inputs),
            other => other,
        };
    }

    /// Refuses the change of validated inputs, for this problem. Returns the refused plan.
    pub(super) fn refuse(&mut self, grounds: Grounds, problem: InputProblem) -> Option<Vec<Object>> {
        let (refused, stage) = match std::mem::take(self) {
            Self::Validated(Inputs { mut validation, seen }) => {
                let refused = validation.objects.take();
                validation.configuration = Some(Err(problem));
                (refused, Self::ChangeRefused(Inputs { validation, seen }, Box::new(grounds)))
            }
            other => (None, other),
        };
        *self = stage;
        refused
    }
}

/// The state of the cluster on which a refusal is based.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grounds {
    /// The planned workload.
    pub(super) workload: Object,
    /// The resource version of the live workload.
    live: Option<String>,
    /// The revision of the counts of nodes.
    nodes: u64,
}

impl Grounds {
    pub(super) fn new(workload: &Object, observer: &Observer, node_counts: &NodeCounts) -> Self {
        Self { workload: workload.clone(), live: version(workload, observer), nodes: node_counts.revision }
    }

    pub(super) fn have_changed(&self, observer: &Observer, node_counts: &NodeCounts) -> bool {
        self.nodes != node_counts.revision || self.live != version(&self.workload, observer)
    }
}

fn version(workload: &Object, observer: &Observer) -> Option<String> {
    observer.live(workload)?["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}
