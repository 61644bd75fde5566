//! Gives the main thread, which runs the command, the stack on Windows that it has on Linux: there it is 1 MiB otherwise, which a
//! build without optimisation overflows.

#![allow(clippy::print_stdout, reason = "this is how a build script answers")]

const STACK_BYTES: u32 = 8 << 20;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |what: &str| std::env::var(format!("CARGO_CFG_TARGET_{what}")).unwrap_or_default();
    match (target("OS").as_str(), target("ENV").as_str()) {
        ("windows", "msvc") => println!("cargo::rustc-link-arg-bins=/STACK:{STACK_BYTES}"),
        ("windows", _) => println!("cargo::rustc-link-arg-bins=-Wl,--stack,{STACK_BYTES}"),
        _ => {}
    }
}
