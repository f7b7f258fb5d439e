use std::any::TypeId;

use ccm_drivers::settings::{COMMON, Kind, Setting, Values};

use super::*;

/// The commands of a driver that the users of this program know, in the order of the help.
const OPERATIONS: &str = "account-show region-list region-show zone-list zone-show instance-list instance-show instance-create \
    instance-delete instance-start instance-stop instance-run instance-metrics instance-sweep network-list host-list \
    storage-list image-list instance-type-list capabilities verify-credentials verify config";

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

#[test]
fn each_driver_has_the_same_operations() {
    let command = command();
    for driver in &*DRIVERS {
        let of_driver = command.find_subcommand(driver.name()).unwrap();
        let names: Vec<_> = of_driver.get_subcommands().map(Command::get_name).collect();
        assert_eq!(names.join(" "), OPERATIONS);
    }
}

#[test]
fn no_driver_has_the_name_of_a_command() {
    let all = Operation::augment_subcommands(Own::augment_subcommands(Command::new(NAME)));
    let reserved: Vec<_> = all.get_subcommands().map(Command::get_name).chain(["help"]).collect();
    for name in ["drivers", "completion", "man", "version", "help"].into_iter().chain(OPERATIONS.split_whitespace()) {
        assert!(reserved.contains(&name), "{name}");
    }
    for driver in &*DRIVERS {
        assert!(!reserved.contains(&driver.name()), "{}", driver.name());
    }
}

#[test]
fn a_flag_of_an_operation_that_has_the_name_of_a_setting_takes_the_same_values() {
    let command = command();
    for driver in &*DRIVERS {
        let of_driver = command.find_subcommand(driver.name()).unwrap();
        for setting in settings(&**driver).map(|setting| argument(driver.name(), setting)) {
            for operation in of_driver.get_subcommands() {
                let own = operation.get_arguments().find(|own| own.get_id() == setting.get_id());
                let Some(own) = own else { continue };
                let place = format!("{} {}: {}", driver.name(), operation.get_name(), own.get_id());
                assert_eq!(own.get_long(), setting.get_long(), "{place}");
                assert_eq!(own.get_value_parser().type_id(), TypeId::of::<String>(), "{place}");
            }
        }
    }
}

/// A value that the type of a setting accepts, and that is not its default.
fn some_value(setting: &Setting) -> &'static str {
    match setting.kind {
        Kind::Boolean => "true",
        Kind::Integer => "7",
        Kind::Duration => "7s",
        Kind::Text | Kind::List | Kind::Path => "/some",
    }
}

fn parsed(driver: &dyn DriverType, words: &[String]) -> Values {
    let matches = command().try_get_matches_from(words).unwrap();
    let matches = matches.subcommand().unwrap().1;
    let given = given(driver, matches, |_| None).unwrap();
    let optional: Vec<_> = settings(driver).cloned().map(|setting| Setting { required: false, ..setting }).collect();
    Values::resolve(driver.name(), &optional, &given).unwrap()
}

#[test]
fn the_flag_of_each_setting_counts_before_and_after_each_operation() {
    let command = command();
    for driver in &*DRIVERS {
        for operation in command.find_subcommand(driver.name()).unwrap().get_subcommands() {
            let mut words = vec![driver.name().to_owned(), operation.get_name().to_owned()];
            for required in operation.get_arguments().filter(|argument| argument.is_required_set()) {
                words.extend(required.get_long().map(|long| format!("--{long}")));
                words.extend(required.is_last_set().then(|| "--".to_owned()));
                words.push("some".to_owned());
            }
            for setting in settings(&**driver) {
                let flag = format!("--{}={}", setting.flag(), some_value(setting));
                for place in [1, 2] {
                    let mut words = words.clone();
                    words.insert(place, flag.clone());
                    words.insert(0, NAME.to_owned());
                    let values = parsed(&**driver, &words);
                    assert_eq!(values.text(&setting.name), Some(some_value(setting)), "{words:?}");
                }
            }
        }
    }
}

#[test]
fn a_boolean_needs_no_value_and_an_empty_variable_is_none() {
    for driver in &*DRIVERS {
        let words = [NAME, driver.name(), "--read-only", "account-show"].map(str::to_owned);
        assert!(parsed(&**driver, &words).is("readOnly"));
        let matches = command().try_get_matches_from([NAME, driver.name(), "account-show"]).unwrap();
        let matches = matches.subcommand().unwrap().1;
        let empty = given(&**driver, matches, |_| Some(OsString::new())).unwrap();
        assert!(empty.environment.is_empty() && empty.flags.is_empty());
    }
}

#[test]
fn the_help_of_a_driver_has_each_setting_and_the_default_of_no_secret() {
    let mut command = command();
    command.build();
    for driver in &*DRIVERS {
        let mut of_driver = command.find_subcommand(driver.name()).unwrap().clone();
        let help = of_driver.render_long_help().to_string();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for setting in settings(&**driver) {
            assert!(words.contains(&format!("--{}", setting.flag())), "{help}");
            assert!(words.contains(&format!("[env: {}]", setting.variable(driver.name()))), "{help}");
            let default = setting.default.as_deref().unwrap_or("none");
            assert!(!words.contains(&format!("[default: {default}] [secret")), "{help}");
        }
        for operation in ["instance-create", "verify"] {
            let mut operation = of_driver.find_subcommand(operation).unwrap().clone();
            let help = operation.render_long_help().to_string();
            assert!(driver.options().iter().all(|option| help.contains(&format!("  {}=", option.name))), "{help}");
        }
    }
}

#[test]
fn the_settings_of_every_driver_have_flags_that_nothing_else_has() {
    let general = General::augment_args(Command::new(NAME));
    for setting in &COMMON {
        assert!(general.get_arguments().all(|own| own.get_long() != Some(&*setting.flag())));
    }
}
