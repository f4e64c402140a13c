//! What wakes the scanner: uevents and changes of directories, each behind a descriptor that Python waits for.

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::lock;
use crate::{uevent, watch};

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct UeventSocket(Mutex<Option<uevent::UeventSocket>>);

#[pymethods]
impl UeventSocket {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(uevent::UeventSocket::open()?))))
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(open(&mut lock(&self.0))?.as_raw_fd())
    }

    fn drain(&self) -> PyResult<Vec<String>> {
        Ok(open(&mut lock(&self.0))?.drain()?)
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct DirectoryWatch(Mutex<Option<watch::DirectoryWatch>>);

#[pymethods]
impl DirectoryWatch {
    #[new]
    fn new() -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(watch::DirectoryWatch::new()?))))
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
