//! The verbs, one file each: options, help and implementation.

pub mod acquire;
pub mod bench;
pub mod compared;
pub mod create;
pub mod demo;
pub mod destroy;
pub mod enlarge;
pub mod export;
pub mod generate;
pub mod lazy;
pub mod listen;
pub mod load;
pub mod mount;
pub mod node;
pub mod options;
pub mod probe;
pub mod python;
pub mod repair;
pub mod room;
pub mod save;
pub mod serve;
pub mod status;
pub mod triage;
pub mod tune;
pub mod unmount;
pub mod verify;
