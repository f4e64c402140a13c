//! The event sources that wake the scanner: uevents, changes of directories, the kernel log and the health reporters of
//! network cards, each behind a descriptor that Python waits for.

use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use super::{beat_of, lock};
use crate::events::kernel_log_rules::{Row, Rules};
use crate::events::uevents::{self, Uevent};
use crate::events::{devlink, inotify, kernel_log};
use crate::host::Host;

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
        let drained = open(&mut lock(&self.0))?.drain()?;
        Ok((drained.events, drained.lost))
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

    fn add_itself(&self, path: &str) -> PyResult<()> {
        Ok(open(&mut lock(&self.0))?.add_itself(Path::new(path))?)
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

/// An event of `KernelLog.drain`.
#[pyclass(frozen, eq, get_all, module = "devherd._native")]
#[derive(Debug, PartialEq)]
pub(super) struct KernelLogEvent {
    rule: String,
    pci_address: String,
    uuid: String,
    gpu_instance: Option<u32>,
    compute_instance: Option<u32>,
    link: Option<u32>,
    xid: String,
    value: String,
    text: String,
    monotonic: f64,
    times: u64,
}

#[pymethods]
impl KernelLogEvent {
    #[new]
    #[pyo3(signature = (
        *, rule, pci_address, uuid, gpu_instance, compute_instance, link, xid, value, text, monotonic, times
    ))]
    #[expect(clippy::too_many_arguments, reason = "its fields, by name")]
    fn new(
        rule: String,
        pci_address: String,
        uuid: String,
        gpu_instance: Option<u32>,
        compute_instance: Option<u32>,
        link: Option<u32>,
        xid: String,
        value: String,
        text: String,
        monotonic: f64,
        times: u64,
    ) -> Self {
        Self { rule, pci_address, uuid, gpu_instance, compute_instance, link, xid, value, text, monotonic, times }
    }

    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

impl From<kernel_log::Event> for KernelLogEvent {
    fn from(event: kernel_log::Event) -> Self {
        let matched = event.matched;
        Self {
            rule: matched.rule,
            pci_address: matched.pci_address,
            uuid: matched.uuid,
            gpu_instance: matched.gpu_instance,
            compute_instance: matched.compute_instance,
            link: matched.link,
            xid: matched.xid,
            value: matched.value,
            text: event.text,
            monotonic: event.monotonic,
            times: event.times,
        }
    }
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct KernelLog(Mutex<Option<kernel_log::KernelLog>>);

#[pymethods]
impl KernelLog {
    #[new]
    #[pyo3(signature = (host_root, rules, *, simulated = false, after = None))]
    fn new(
        host_root: &str,
        rules: Vec<(String, String, String)>,
        simulated: bool,
        after: Option<(u64, f64)>,
    ) -> PyResult<Self> {
        let host = if simulated { Host::simulated(host_root) } else { Host::new(host_root) };
        let after = after.map(|(next, lag)| kernel_log::Position { next, lag });
        let rules = Rules::new(rows(rules)).map_err(refused)?;
        let log = kernel_log::KernelLog::of_host(&host, Path::new(host_root), rules, after);
        Ok(Self(Mutex::new(Some(log.map_err(numbered)?))))
    }

    fn fileno(&self) -> PyResult<RawFd> {
        Ok(open(&mut lock(&self.0))?.as_raw_fd())
    }

    fn drain(&self, python: Python<'_>, most: usize) -> PyResult<(Vec<KernelLogEvent>, u64, bool)> {
        let batch = python.detach(|| open(&mut lock(&self.0)).map(|log| log.drain(most)))?.map_err(numbered)?;
        Ok((batch.events.into_iter().map(KernelLogEvent::from).collect(), batch.lost, batch.more))
    }

    fn position(&self) -> PyResult<(u64, f64)> {
        let position = open(&mut lock(&self.0))?.position();
        Ok((position.next, position.lag))
    }

    fn close(&self) {
        lock(&self.0).take();
    }
}

#[pyfunction]
pub(super) fn check_kernel_log_rules(rules: Vec<(String, String, String)>) -> PyResult<()> {
    Rules::check(&rows(rules)).map_err(refused)
}

fn rows(rules: Vec<(String, String, String)>) -> Vec<Row> {
    rules.into_iter().map(|(name, contains, pattern)| Row { name, contains, pattern }).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn refused(error: std::io::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The exception with its error number, which the conversion of `pyo3` leaves out.
fn numbered(error: std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => error.into(),
    }
}

pub(super) fn open<T>(resource: &mut Option<T>) -> PyResult<&mut T> {
    resource.as_mut().ok_or_else(|| PyValueError::new_err("I/O operation on a closed descriptor"))
}

/// A reporter of `Devlink.reporters`.
#[pyclass(frozen, eq, get_all, module = "devherd._native")]
#[derive(PartialEq)]
pub(super) struct HealthReporter {
    device: String,
    name: String,
    is_in_error: bool,
    errors: u64,
    recovers: bool,
}

#[pyclass(frozen, module = "devherd._native")]
pub(super) struct Devlink(Mutex<devlink::Devlink>);

#[pymethods]
impl Devlink {
    #[new]
    #[pyo3(signature = (deadline_seconds, simulated_node = None))]
    fn new(deadline_seconds: f64, simulated_node: Option<&str>) -> PyResult<Self> {
        let deadline =
            Duration::try_from_secs_f64(deadline_seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(Mutex::new(match simulated_node {
            None => devlink::Devlink::of_kernel(deadline),
            Some(root) => devlink::Devlink::of_simulated_node(Path::new(root), deadline),
        })))
    }

    #[getter]
    fn is_open(&self) -> bool {
        lock(&self.0).readable().is_some()
    }

    fn fileno(&self) -> PyResult<RawFd> {
        let devlink = lock(&self.0);
        Ok(open(&mut devlink.readable())?.as_raw_fd())
    }

    fn receive(&self) -> PyResult<()> {
        Ok(lock(&self.0).receive()?)
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 takes arguments by value")]
    #[pyo3(signature = (beat = None))]
    fn dump(&self, python: Python<'_>, beat: Option<Py<PyAny>>) -> PyResult<()> {
        Ok(python.detach(|| lock(&self.0).dump(&beat_of(beat.as_ref())))?)
    }

    #[getter]
    fn is_stale(&self) -> bool {
        lock(&self.0).is_stale()
    }

    #[getter]
    fn reporters(&self) -> Vec<HealthReporter> {
        let devlink = lock(&self.0);
        let reporter = |((device, name), state): (&(String, String), &devlink::State)| HealthReporter {
            device: device.clone(),
            name: name.clone(),
            is_in_error: state.is_in_error,
            errors: state.errors,
            recovers: state.recovers,
        };
        devlink.reporters().iter().map(reporter).collect()
    }

    fn close(&self) {
        lock(&self.0).close();
    }
}
