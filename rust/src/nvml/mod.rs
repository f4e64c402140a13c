//! NVIDIA's management library, asked in a process of its own: a hang or a crash of it costs a deadline, nothing more.

pub mod facts;
