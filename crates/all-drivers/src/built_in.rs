//! The built-in drivers: the only list of them. Each stands behind a Cargo feature of its own name.

use std::sync::LazyLock;

use ccm_drivers::contract::DriverType;

static BUILT_IN: LazyLock<Box<[Box<dyn DriverType>]>> = LazyLock::new(|| {
    Box::new([
        #[cfg(feature = "docker")]
        Box::new(ccm_driver_docker::Docker),
        #[cfg(feature = "fake")]
        Box::new(ccm_driver_fake::Fake::new()),
    ])
});

/// The drivers that are compiled into the program.
pub fn built_in() -> &'static [Box<dyn DriverType>] {
    &BUILT_IN
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ccm_drivers::settings::problems;

    use super::*;

    #[test]
    fn names_are_unique_and_of_the_right_form() {
        let names: BTreeSet<_> = built_in().iter().map(|driver| driver.name()).collect();
        assert_eq!(names.len(), built_in().len());
        for driver in built_in() {
            let problems = problems(driver.name(), driver.settings(), driver.options());
            assert!(problems.is_empty(), "{problems:?}");
        }
    }

    #[test]
    fn each_driver_is_a_feature_of_its_own_name_that_is_on_by_default() {
        let package = include_str!("../Cargo.toml");
        let defaults = package.lines().find(|line| line.starts_with("default = [")).unwrap();
        for name in built_in().iter().map(|driver| driver.name()) {
            assert!(package.contains(&format!("\n{name} = [\"dep:ccm-driver-{name}\"]\n")), "{name}");
            assert!(defaults.contains(&format!("{name:?}")), "{name}: {defaults}");
        }
    }
}
