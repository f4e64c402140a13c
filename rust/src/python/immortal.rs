//! Immortal objects: their reference counts stand still, so forked processes go on sharing the pages they lie in.
//!
//! A count that is too high is always safe: the object is never freed, as if somebody held it for good. That the interpreter
//! leaves such a count alone, and so does not write to its page, is what is gained.
//!
//! <https://peps.python.org/pep-0683/> has made `None` and the like immortal since Python 3.12, and names this use. An
//! interpreter that is not known here to honour the count below is left as it is.
#![expect(unsafe_code, reason = "reference counts have no safe interface")]

use std::ptr;

use pyo3::ffi::Py_ssize_t;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyModule, PyTuple, PyType};

/// `_Py_IMMORTAL_REFCNT` of Python 3.12 and 3.13 on 64 bits: increments stop at it, decrements above half of it.
///
/// Extensions with an older stable interface, this one too, count on from here: 64 bits keep such a count from zero.
const IMMORTAL: Py_ssize_t = 0xFFFF_FFFF;

/// What code and modules are made of, by module and name. Nothing happens when one of them ends.
const LASTING: [(&str, &str); 15] = [
    ("builtins", "classmethod"),
    ("builtins", "frozenset"),
    ("builtins", "property"),
    ("builtins", "staticmethod"),
    ("importlib.machinery", "ModuleSpec"),
    ("importlib.machinery", "SourceFileLoader"),
    ("types", "BuiltinFunctionType"),
    ("types", "FunctionType"),
    ("types", "GenericAlias"),
    ("types", "GetSetDescriptorType"),
    ("types", "MemberDescriptorType"),
    ("types", "MethodDescriptorType"),
    ("types", "ModuleType"),
    ("types", "UnionType"),
    ("types", "WrapperDescriptorType"),
];

/// Makes functions, their code, types, tuples and modules with their names immortal, where they are among the objects; how
/// many.
#[pyfunction]
pub(super) fn make_immortal(objects: &Bound<'_, PyList>) -> PyResult<usize> {
    let python = objects.py();
    let version = python.version_info();
    if cfg!(not(target_pointer_width = "64")) || !matches!((version.major, version.minor), (3, 12 | 13)) {
        return Ok(0);
    }
    let function = python.import("types")?.getattr("FunctionType")?;
    let kind_of = |&(module, name): &(&str, &str)| python.import(module)?.getattr(name);
    let lasting = LASTING.iter().map(kind_of).collect::<PyResult<Vec<_>>>()?;
    let mut made = 0;
    for object in objects.iter() {
        let kind = object.get_type_ptr();
        if ptr::eq(kind.cast(), function.as_ptr()) {
            made += mark_code(&object.getattr("__code__")?);
        }
        if let Ok(module) = object.cast::<PyModule>() {
            made += usize::from(mark(&module.dict()));
        }
        let is_lasting = lasting.iter().any(|lasting| ptr::eq(kind.cast(), lasting.as_ptr()));
        if is_lasting || object.is_exact_instance_of::<PyTuple>() || object.is_instance_of::<PyType>() {
            made += usize::from(mark(&object));
        }
    }
    Ok(made)
}

/// A code object and its constants, of which each use counts, with the code in them.
fn mark_code(code: &Bound<'_, PyAny>) -> usize {
    if !mark(code) {
        return 0;
    }
    let Ok(Ok(constants)) = code.getattr("co_consts").map(Bound::cast_into::<PyTuple>) else {
        return 1;
    };
    let inner = constants.iter().map(|constant| {
        if ptr::eq(constant.get_type_ptr(), code.get_type_ptr()) {
            mark_code(&constant)
        } else {
            usize::from(mark(&constant))
        }
    });
    1 + inner.sum::<usize>() + usize::from(mark(&constants))
}

/// False for one that is immortal already.
fn mark(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive, this thread is attached to the interpreter, and in its version the count is where
    // the stable interface has it. A count that no decrement brings to zero keeps the object alive.
    let count = unsafe { &mut (*object.as_ptr()).ob_refcnt };
    let is_mortal = *count < IMMORTAL / 2;
    if is_mortal {
        *count = IMMORTAL;
    }
    is_mortal
}
