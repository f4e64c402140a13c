//! What wakes the scanner: uevents and changes of directories, each behind a descriptor that Python waits for.

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::lock;
use crate::events::uevents::Uevent;
use crate::events::{inotify, uevents};

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct UeventSocket(Mutex<Option<uevents::UeventSocket>>);

#[pymethods]
impl UeventSocket {
    #[new]
    #[pyo3(signature = (simulated_node = None))]
    fn new(simulated_node: Option<&str>) -> PyResult<Self> {
        let socket = match simulated_node {
            None => uevents::UeventSocket::of_kernel(),
            Some(root) => uevents::UeventSocket::of_simulated_node(Path::new(root)),
        };
        Ok(Self(Mutex::new(Some(socket?))))
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(open(&mut lock(&self.0))?.as_raw_fd())
    }

    fn drain(&self) -> PyResult<(Vec<Uevent>, bool)> {
        let heard = open(&mut lock(&self.0))?.drain()?;
        Ok((heard.events, heard.lost))
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct DirectoryWatch(Mutex<Option<inotify::DirectoryWatch>>);

#[pymethods]
impl DirectoryWatch {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(inotify::DirectoryWatch::new()?))))
    }

    fn add(&self, path: &str) -> PyResult<()> {
        Ok(open(&mut lock(&self.0))?.add(Path::new(path))?)
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(open(&mut lock(&self.0))?.as_raw_fd())
    }

    fn drain(&self) -> PyResult<Vec<(String, String)>> {
        Ok(open(&mut lock(&self.0))?.drain()?)
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

fn open<T>(resource: &mut Option<T>) -> PyResult<&mut T> {
    resource.as_mut().ok_or_else(|| PyValueError::new_err("I/O operation on a closed descriptor"))
}
