//! The program that a guard starts: the files to try, its arguments and its environment.

use crate::guard_protocol::SpawnSpec;
use std::ffi::{CString, NulError, OsString};
use std::os::unix::ffi::OsStringExt as _;

/// The search path if the environment has no `PATH`, as in the C library.
const PATH: &str = "/bin:/usr/bin";

/// The parameters of `execve`, prepared before the spawn.
#[derive(Default)]
pub(crate) struct ExecImage {
    /// The files to try, in order.
    pub(crate) files: Vec<CString>,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
}

impl ExecImage {
    pub(crate) fn new(spec: &SpawnSpec) -> Result<Self, NulError> {
        let text = |text: &crate::guard_protocol::OsText| OsString::from(text.clone()).into_vec();
        let environment: Vec<_> = spec.env.iter().map(text).collect();
        let program = text(&spec.program);
        let mut variables = environment.iter();
        let path = variables.find_map(|variable| variable.strip_prefix(b"PATH="));
        let files = files(&program, path);
        let arguments = std::iter::once(program).chain(spec.args.iter().map(text));
        Ok(ExecImage {
            files: strings(files)?,
            arguments: strings(arguments)?,
            environment: strings(environment)?,
        })
    }
}

/// Lists the files that a program name can mean: the name itself if it has a slash, otherwise one file in each directory of `path`.
pub(crate) fn files(program: &[u8], path: Option<&[u8]>) -> Vec<Vec<u8>> {
    // An empty name would mean each directory itself.
    if program.contains(&b'/') || program.is_empty() {
        return vec![program.to_owned()];
    }
    let folders = path.unwrap_or(PATH.as_bytes()).split(|byte| *byte == b':');
    // An empty entry is the working directory.
    let file = |folder: &[u8]| [if folder.is_empty() { b"." } else { folder }, program].join(&b'/');
    folders.map(file).collect()
}

fn strings(texts: impl IntoIterator<Item = Vec<u8>>) -> Result<Vec<CString>, NulError> {
    texts.into_iter().map(CString::new).collect()
}
