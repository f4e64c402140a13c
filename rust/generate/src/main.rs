//! Writes Rust types for protobuf messages, a file a package.
//!
//! ```text
//! generate DIRECTORY < DESCRIPTORS
//! ```
//!
//! `DESCRIPTORS` is what `protoc --descriptor_set_out` writes. Maps are in the order of their keys, so that equal messages
//! are encoded alike. Comments stay in `proto/`.

use std::error::Error;
use std::io::{Read, stdin};
use std::path::PathBuf;
use std::{env, fs};

use prost::Message;
use prost_build::{Config, Module};
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(env::args_os().nth(1).ok_or("usage: generate DIRECTORY < DESCRIPTORS")?);
    let mut descriptors = Vec::new();
    stdin().read_to_end(&mut descriptors)?;
    let files = FileDescriptorSet::decode(&*descriptors)?.file;
    let requests = files.into_iter().map(|file| (Module::from_protobuf_package_name(file.package()), file)).collect();
    for (module, code) in Config::new().btree_map(["."]).disable_comments(["."]).generate(requests)? {
        fs::write(directory.join(module.to_file_name_or("")), code)?;
    }
    Ok(())
}
