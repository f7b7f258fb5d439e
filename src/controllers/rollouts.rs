//! The rollouts of planned objects, from what their watches show.

use crate::{
    controllers::observer::Observer,
    object::{Key, Object},
    status::rollout::{self, Rollout},
};

/// The rollouts of objects.
#[derive(Debug, Default)]
pub(super) struct Rollouts {
    /// The objects that are not rolled out.
    pub(super) waiting: Vec<Key>,
    /// Why one is stuck, if one is.
    pub(super) stuck: Option<String>,
    /// How many workloads are rolled out, are being rolled out, and are stuck.
    pub(super) workloads: [usize; 3],
}

impl Rollouts {
    /// Of these objects; those that are left alone and that no watch shows do not count.
    pub(super) fn of(observer: &Observer, objects: &[Object], is_left_alone: impl Fn(&Key) -> bool) -> Self {
        let mut all = Self::default();
        for object in objects {
            let rollout = observer.live(object).map(rollout::of);
            if object.pod_spec().is_some() {
                let state = match &rollout {
                    Some(Rollout::Done) => 0,
                    Some(Rollout::Stuck { .. }) => 2,
                    Some(Rollout::Progressing) | None => 1,
                };
                all.workloads[state] += 1;
            }
            if rollout.is_none() && is_left_alone(&object.key()) {
                continue;
            }
            if let Some(Rollout::Stuck { why }) = &rollout {
                all.stuck = Some(format!("the rollout of {} is stuck: {why}", object.key()));
            }
            if rollout != Some(Rollout::Done) {
                all.waiting.push(object.key());
            }
        }
        all
    }
}
