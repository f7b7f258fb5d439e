//! Gives the linker script of `hack/build.sh` to the linker of the program. As a flag of the compiler it would also be used for build scripts
//! and macros.

fn main() {
    const SCRIPT: &str = "CCM_OPERATOR_LINKER_SCRIPT";
    println!("cargo:rerun-if-env-changed={SCRIPT}");
    if let Ok(script) = std::env::var(SCRIPT) {
        println!("cargo:rerun-if-changed={script}");
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{script}");
    }
}
