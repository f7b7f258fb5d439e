//! Compatibility with the Go operator's command lines: the names of its programs, and klog's flags.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::flags::boolean;

/// The names of the Go operator's programs, and the commands that replace them. Its operator leaves the configuration to a separate
/// process. `render` was removed in 2021.
pub(super) const PROGRAMS: [(&str, &[&str]); 4] = [
    ("cluster-controller-manager-operator", &["operator", "--controllers=operator"]),
    ("config-sync-controllers", &["config-sync"]),
    ("azure-config-credentials-injector", &["azure-inject-credentials"]),
    ("render", &["render"]),
];

/// The flags of klog that are switches.
const SWITCHES: [&str; 7] = [
    "add_dir_header",
    "alsologtostderr",
    "legacy_stderr_threshold_behavior",
    "logtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
];

/// The flags of klog that have a value, without `-v`, which this program has as well.
const VALUES: [&str; 7] = [
    "alsologtostderrthreshold",
    "log_backtrace_at",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "stderrthreshold",
    "vmodule",
];

/// The flags of klog (k8s.io/klog/v2), which are accepted and change nothing: logs go to standard error.
#[derive(Debug)]
pub struct KlogFlags;

impl Args for KlogFlags {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).hide(true);
        let switch = |name| flag(name).num_args(0..=1).require_equals(true).value_parser(boolean);
        command.args(SWITCHES.map(switch)).args(VALUES.map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KlogFlags {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}
