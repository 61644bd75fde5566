//! `cheetah`: the idle RAM of a room full of machines as one forensic drive.
//!
//! One file a verb in [`commands`]; how things look in [`ui`]; how they fail in [`failure`].

#![forbid(unsafe_code)]

mod cli;
mod commands;
mod failure;
mod signals;
mod ui;

use std::process::ExitCode;

use clap::Parser;

// musl's own allocator takes a lock per call, which costs a node half of its throughput.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    ui::log::start(cli.verbose);
    let ui = ui::Ui::new(cli.json);
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| failure::Failure::failed(format!("cannot start worker threads: {error}")))
        .and_then(|runtime| {
            let result = runtime.block_on(cli.command.run(&ui));
            // Reads that will never be answered must not keep a finished command from exiting.
            runtime.shutdown_background();
            result
        });
    let code = match result.and_then(|()| ui::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            ui.failure(&failure);
            failure.code.into()
        }
    };
    ui::stderr::flush(ui::STDERR_PATIENCE);
    code
}
