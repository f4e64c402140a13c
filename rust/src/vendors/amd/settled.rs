//! KFD's topology, once it is the same twice.
//!
//! For each partition that comes or goes the kernel removes the nodes of all GPUs and builds them anew, one after another
//! (`kfd_topology_update_sysfs` of `kfd_topology.c`), and tells nobody. A look in between sees half of them, or a node that
//! is not filled in yet, and partitions whose node is not there yet look like spare ones. The generation alone does not
//! tell: it rises before nodes are removed, and after they are added.

use std::sync::{Arc, Mutex, PoisonError};

use super::links::{Fabric, KnownFabric};
use super::topology::{Shape, Topology};
use crate::host::Host;
use crate::host::attribute::AttributeError;

/// What the last look saw.
#[derive(Debug, Default)]
pub(super) struct Settled {
    last: Mutex<Option<Shape>>,
    fabric: KnownFabric,
}

impl Settled {
    /// The topology and how its GPUs are linked; `None` while it is not what the last look saw. The first look looks twice.
    ///
    /// # Errors
    /// When the nodes cannot be listed. The next look is a first one then.
    pub(super) fn look(&self, host: &Host) -> Result<Option<(Topology, Arc<Fabric>)>, AttributeError> {
        let Some(topology) = self.twice_the_same(|| Topology::read(host))? else { return Ok(None) };
        let fabric = self.fabric.of(&topology);
        Ok(Some((topology, fabric)))
    }

    fn twice_the_same<E>(&self, read: impl Fn() -> Result<Topology, E>) -> Result<Option<Topology>, E> {
        // Taken out: a read that hangs must not hold the lock.
        let last = self.replace(None);
        let last = last.map_or_else(|| Ok(read()?.shape), Ok)?;
        let topology = read()?;
        self.replace(Some(topology.shape.clone()));
        Ok((topology.shape == last).then_some(topology))
    }

    fn replace(&self, shape: Option<Shape>) -> Option<Shape> {
        std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), shape)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// A topology with so many nodes.
    fn with_nodes(count: u32) -> Topology {
        let shape = (Some("5".to_owned()), (0..count).map(|number| (number, None)).collect::<BTreeMap<_, _>>());
        Topology { shape, ..Topology::default() }
    }

    /// Whether each look is believed, of readings with so many nodes; `None` is a read that fails.
    fn believed(looks: usize, readings: &[Option<u32>]) -> Vec<Result<bool, ()>> {
        let (settled, readings) = (Settled::default(), RefCell::new(readings.iter()));
        let read = || readings.borrow_mut().next().copied().flatten().map(with_nodes).ok_or(());
        (0..looks).map(|_| settled.twice_the_same(read).map(|topology| topology.is_some())).collect()
    }

    #[test]
    fn what_two_looks_agree_on_is_believed() {
        let (whole, half) = (Some(3), Some(1));
        assert_eq!(believed(1, &[whole, whole]), [Ok(true)]);
        assert_eq!(believed(1, &[half, whole]), [Ok(false)]);
        assert_eq!(believed(4, &[whole, whole, half, whole, whole]), [Ok(true), Ok(false), Ok(false), Ok(true)]);
    }

    #[test]
    fn after_a_failure_the_first_look_looks_twice_again() {
        assert_eq!(believed(3, &[Some(3), Some(3), None, Some(2), Some(2)]), [Ok(true), Err(()), Ok(true)]);
    }
}
