//! NVIDIA's management library, asked in a process of its own: a hang or a crash of it costs a deadline, nothing more.
//!
//! ```text
//! process    asks a command and keeps its last good answer            [the scanner]
//!   └─► attempt    one run of the command, killed when it is overdue
//!         └─► probe      finds the library, asks it, prints           [the command: python -m devherd.nvml_probe]
//!               locate ─► library (interface) ─► gather (extras)
//! facts      the form in which the answer is handed on
//! ```

mod attempt;
mod extras;
pub mod facts;
mod gather;
mod interface;
mod library;
pub mod locate;
pub mod probe;
pub mod process;
