//! The checks by their ids (pure). An id is never used for another check.

use super::Check;

const fn check(id: &'static str, name: &'static str, needs_instances: bool, protects: &'static str) -> Check {
    Check { id, name, protects, needs_instances }
}

/// All checks, in the order of their ids.
pub static CHECKS: [Check; 19] = [
    check(
        "I1",
        "create-twice-is-one",
        true,
        "A controller that repeats a create after a crash pays for two instances, or takes another one for its own.",
    ),
    check("I2", "delete-twice-succeeds", true, "A finalizer is retried forever because its instance is already gone."),
    check(
        "I3",
        "gone-is-not-found",
        true,
        "The Node of a deleted instance stays because its error has another class, or all Nodes go because a mistyped region looks \
         empty.",
    ),
    check("I4", "stopped-exists", true, "The Node of an instance that is only stopped is deleted."),
    check(
        "I5",
        "partial-create-returns-id",
        true,
        "An instance runs and is paid for, and nobody knows it, because create failed after making it.",
    ),
    check(
        "I6",
        "settings-of-a-call-do-not-stick",
        true,
        "An instance gets the image or the labels that another one asked for.",
    ),
    check(
        "I7",
        "wrong-credentials-have-their-class",
        false,
        "Wrong credentials are taken for an outage or for an empty account.",
    ),
    check("I8", "unreachable-is-not-not-found", false, "Nodes are deleted because the cloud did not answer."),
    check(
        "I9",
        "ids-are-unique",
        false,
        "An operation on one instance, region or zone hits another one that has the same id.",
    ),
    check(
        "I10",
        "advertised-is-implemented",
        false,
        "A command or a controller relies on a capability that is not there.",
    ),
    check("I11", "labels-round-trip", true, "Instances are not found by their labels or their owner, and leak."),
    check("I12", "garbage-does-not-panic", false, "One odd answer of the cloud ends the process."),
    check(
        "I13",
        "ids-are-stable",
        true,
        "A Node loses its instance because an id or the providerID, which is immutable, changes or cannot be parsed.",
    ),
    check(
        "I14",
        "beginnings-of-ids-hit-nobody",
        true,
        "An operation on a name or on a part of an id stops or deletes the instance of somebody else.",
    ),
    check(
        "I15",
        "concurrent-creates-are-one",
        true,
        "Two controllers, or two attempts that overlap, make two instances for one owner.",
    ),
    check(
        "I16",
        "create-settings-block-no-clean-up",
        false,
        "Instances cannot be deleted because their image, network or instance type is gone.",
    ),
    check(
        "I17",
        "another-account-is-invalid-credentials",
        false,
        "Credentials of another account make all instances look as if they were gone.",
    ),
    check(
        "I18",
        "gone-is-gone-from-the-next-read",
        true,
        "A cache serves an instance that was deleted, or gives its labels to the next one of its name.",
    ),
    check(
        "I19",
        "what-does-not-exist-is-refused",
        true,
        "A mistyped region, zone, image, instance type or network is ignored, and the instance is made of something else.",
    ),
];
