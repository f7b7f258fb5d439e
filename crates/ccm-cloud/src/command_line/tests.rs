use ccm_drivers::settings::{COMMON, Kind, NETWORK, Setting, Values};

use super::*;

/// The commands of a driver that the users of this program know, in the order of the help.
const OPERATIONS: &str = "account-show region-list region-show zone-list zone-show instance-list instance-show instance-create \
    instance-delete instance-start instance-stop instance-run instance-metrics instance-sweep network-list host-list \
    storage-list image-list instance-type-list capabilities verify-credentials verify config";

/// The drivers that are built in.
fn drivers() -> &'static Drivers {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(Drivers::load(&DriverFlags::default(), |_| None)).unwrap()
}

fn whole() -> Command {
    command(drivers())
}

#[test]
fn the_command_line_is_consistent() {
    whole().debug_assert();
}

#[test]
fn each_driver_has_the_same_operations() {
    let command = whole();
    for driver in drivers().all() {
        let of_driver = command.find_subcommand(driver.name()).unwrap();
        let names: Vec<_> = of_driver.get_subcommands().map(Command::get_name).collect();
        assert_eq!(names.join(" "), OPERATIONS);
    }
}

#[test]
fn no_driver_has_the_name_of_a_command() {
    let all = Operation::augment_subcommands(Own::augment_subcommands(Command::new(NAME)));
    let reserved: Vec<_> = all.get_subcommands().map(Command::get_name).chain(["help"]).collect();
    for name in ["drivers", "new-driver", "completion", "man", "version", "help"]
        .into_iter()
        .chain(OPERATIONS.split_whitespace())
    {
        assert!(reserved.contains(&name), "{name}");
    }
    for driver in drivers().all() {
        assert!(!reserved.contains(&driver.name()), "{}", driver.name());
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
    let matches = whole().try_get_matches_from(words).unwrap();
    let matches = matches.subcommand().unwrap().1;
    let given = given(driver, matches, |_| None).unwrap();
    let optional: Vec<_> = settings(driver).cloned().map(|setting| Setting { required: false, ..setting }).collect();
    Values::resolve(driver.name(), &optional, &given).unwrap()
}

#[test]
fn the_flag_of_each_setting_counts_before_and_after_each_operation() {
    let command = whole();
    for driver in drivers().all() {
        for operation in command.find_subcommand(driver.name()).unwrap().get_subcommands() {
            let mut words = vec![driver.name().to_owned(), operation.get_name().to_owned()];
            for required in operation.get_arguments().filter(|argument| argument.is_required_set()) {
                words.extend(required.get_long().map(|long| format!("--{long}")));
                words.extend(required.is_last_set().then(|| "--".to_owned()));
                words.push("some".to_owned());
            }
            for setting in settings(driver) {
                let flag = format!("--{}={}", setting.flag(), some_value(setting));
                for place in [1, 2] {
                    let mut words = words.clone();
                    words.insert(place, flag.clone());
                    words.insert(0, NAME.to_owned());
                    let values = parsed(driver, &words);
                    assert_eq!(values.text(&setting.name), Some(some_value(setting)), "{words:?}");
                }
            }
        }
    }
}

#[test]
fn a_boolean_needs_no_value_and_an_empty_variable_is_none() {
    for driver in drivers().all() {
        let words = [NAME, driver.name(), "--read-only", "account-show"].map(str::to_owned);
        assert!(parsed(driver, &words).is("readOnly"));
        let matches = whole().try_get_matches_from([NAME, driver.name(), "account-show"]).unwrap();
        let matches = matches.subcommand().unwrap().1;
        let empty = given(driver, matches, |_| Some(OsString::new())).unwrap();
        assert!(empty.environment.is_empty() && empty.flags.is_empty());
    }
}

#[test]
fn the_help_of_a_driver_has_each_setting_and_the_default_of_no_secret() {
    let mut command = whole();
    command.build();
    for driver in drivers().all() {
        let mut of_driver = command.find_subcommand(driver.name()).unwrap().clone();
        let help = of_driver.render_long_help().to_string();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for setting in settings(driver) {
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
    let general = DriverFlags::augment_args(General::augment_args(Command::new(NAME)));
    for setting in COMMON.iter().chain(&NETWORK) {
        assert!(general.get_arguments().all(|own| own.get_long() != Some(&*setting.flag())));
    }
}

/// Checked for external drivers when they are loaded.
#[test]
fn the_flags_of_built_in_drivers_fit() {
    for driver in drivers().all() {
        fit::check(driver).unwrap();
    }
}

fn scanned(words: &[&str]) -> Result<(Option<String>, String, Vec<String>), String> {
    let words: Vec<_> = [NAME].iter().chain(words).map(OsString::from).collect();
    let (flags, others) = driver_flags(&words).map_err(|error| error.to_string())?;
    let others = others.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    Ok((flags.driver.map(|pin| pin.to_string()), flags.driver_folder.display().to_string(), others))
}

#[test]
fn the_flags_of_an_external_driver_are_found_wherever_they_stand() {
    let pin = format!("./a.py@sha256:{}", "0".repeat(64));
    let equals = format!("--driver={pin}");
    for words in [
        &["--driver", &pin, "--driver-folder", ".", "a", "instance-list"][..],
        &["a", "instance-list", &equals, "--driver-folder=."],
        &["a", "--driver-folder", ".", "instance-list", "--driver", &pin],
    ] {
        let expected = (Some(pin.clone()), ".".to_owned(), vec!["a".to_owned(), "instance-list".to_owned()]);
        assert_eq!(scanned(words), Ok(expected), "{words:?}");
    }
    let (driver, folder, others) =
        scanned(&["fake", "instance-run", "a", "--", "--driver", "x", "--driver-folder"]).unwrap();
    assert_eq!(
        (driver, folder.as_str(), others.join(" ")),
        (None, "/cloud-providers", "fake instance-run a".to_owned())
    );
    for words in [
        &["fake", "--driver"][..],
        &["--driver", "a.py", "fake"],
        &["--driver", &pin, "fake", "--driver", &pin],
        &["--driver-folder=", "fake", "--driver", &pin],
    ] {
        assert!(scanned(words).unwrap_err().contains("--driver"), "{words:?}");
    }
    // As the command line itself takes them.
    let (before, after) = (["--driver", &pin, "fake", "account-show"], ["fake", "account-show", "--driver", &pin]);
    for words in [before, after] {
        let matches = whole().try_get_matches_from([NAME].iter().chain(&words)).unwrap();
        assert_eq!(DriverFlags::from_arg_matches(&matches).unwrap().driver.unwrap().to_string(), pin);
    }
}
