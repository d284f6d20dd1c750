//! The calls outside of the modules for hostile files, each with its reason.

/// The calls that a file may make, and why they are safe.
#[derive(Debug)]
pub(super) struct AllowedCalls {
    pub(super) file: &'static str,
    /// The names of the calls, as in [`super::Call`].
    pub(super) calls: &'static [&'static str],
    /// The files that the calls reach, and why a hostile project can't misuse them.
    pub(super) reason: &'static str,
}

pub(super) const ALLOWED: &[AllowedCalls] = &[
    AllowedCalls {
        file: "crates/agent-api/src/tool/file_change.rs",
        calls: &[
            "rustix::fs::linkat",
            "rustix::fs::openat",
            "rustix::fs::renameat",
            "rustix::fs::renameat_with",
            "rustix::fs::unlinkat",
        ],
        reason: "It makes a new file of a random name beside the file that a model changes, and renames it, below a directory that no_links.rs opened: O_EXCL and a rename follow no link.",
    },
    AllowedCalls {
        file: "crates/agent-api/src/tool/no_links.rs",
        calls: &[
            "rustix::fs::mkdirat",
            "rustix::fs::openat",
            "rustix::fs::statat",
        ],
        reason: "It is the crate's module for hostile directories: it follows no link in any part of a path.",
    },
    AllowedCalls {
        file: "crates/agent-api/src/tool/plain_file.rs",
        calls: &["rustix::fs::openat"],
        reason: "It is the crate's module for hostile files: it opens no link, and waits for no FIFO.",
    },
    AllowedCalls {
        file: "crates/agent-api/src/tool/working_directory.rs",
        calls: &[".canonicalize()", ".symlink_metadata()"],
        reason: "It resolves the paths of a model to judge whether they leave the working directory, and opens nothing.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/acp/driver.rs",
        calls: &["std::fs::canonicalize"],
        reason: "It resolves the working directory of the agent, and opens nothing.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/acp/gemini.rs",
        calls: &["std::fs::read_dir", "std::fs::rename"],
        reason: "It renames the record of a session in the user's own folder of that agent, outside of the project.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/api/driver.rs",
        calls: &["rustix::fs::open"],
        reason: "It reads the rules of the project for the agent. It follows no link, opens only a regular file, and reads 64 KiB at most.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/codex/commands.rs",
        calls: &["std::fs::read"],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/host_variables.rs",
        calls: &[
            "std::fs::OpenOptions::new",
            "std::fs::read",
            "std::fs::read_to_string",
        ],
        reason: "It reads and writes /proc/self.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/parts.rs",
        calls: &["rustix::fs::open", "rustix::fs::stat"],
        reason: "It reads an image or a file that the caller names for one message. It follows links, because the caller chose the path, but opens only a regular file and reads a limited number of bytes; `rlm` doesn't use it.",
    },
    AllowedCalls {
        file: "crates/agent-drivers/src/session_locks.rs",
        calls: &[
            "std::fs::DirBuilder::new",
            "std::fs::OpenOptions::new",
            "std::fs::metadata",
            "std::fs::read_dir",
            "std::fs::remove_file",
            "std::fs::symlink_metadata",
        ],
        reason: "Its files are in the user's own directory, outside of any project; it checks owner and mode, and opens no link or FIFO.",
    },
    AllowedCalls {
        file: "crates/agent-duplex/src/persistence/sqlite/file.rs",
        calls: &[
            "std::fs::File::open",
            "std::fs::OpenOptions::new",
            "std::fs::hard_link",
            "std::fs::metadata",
            "std::fs::remove_file",
            "std::fs::rename",
            "std::fs::symlink_metadata",
        ],
        reason: "It opens the database at the path that its caller names; `rlm` doesn't use it.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/ancestry.rs",
        calls: &["std::fs::read_to_string"],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/error.rs",
        calls: &["std::fs::File::open"],
        reason: "It reads two bytes of a program that the system just failed to start because of its loader: a regular file.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/guard/serve.rs",
        calls: &["rustix::fs::open"],
        reason: "It opens /dev/null.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/launch.rs",
        calls: &["std::fs::File::options", "std::fs::canonicalize"],
        reason: "It opens /dev/null. It resolves the directory of the survivors file once; plain_file.rs then opens the file without a link.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/proc_fs.rs",
        calls: &[
            "std::fs::File::open",
            "std::fs::read",
            "std::fs::read_dir",
            "std::fs::read_to_string",
        ],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/sweep/linux.rs",
        calls: &["std::fs::File::open"],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/agent-subprocess/src/sys.rs",
        calls: &["std::fs::read_dir"],
        reason: "It reads /proc/self/fd.",
    },
    AllowedCalls {
        file: "crates/checkpoint-store/src/import.rs",
        calls: &["fs_err::canonicalize"],
        reason: "It resolves the directory of a file that the user names; the disk module then opens the file.",
    },
    AllowedCalls {
        file: "crates/checkpoint-store/src/list.rs",
        calls: &["fs_err::read_dir"],
        reason: "It reads the names in a directory that the caller trusts; the disk module opens each store.",
    },
    AllowedCalls {
        file: "crates/interrupt-stack/src/process.rs",
        calls: &["std::fs::File::open"],
        reason: "It opens /dev/tty.",
    },
    AllowedCalls {
        file: "crates/interrupt-stack/src/signal_catcher.rs",
        calls: &["std::fs::read"],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/loop-runner/src/control/socket_path.rs",
        calls: &[
            "std::fs::DirBuilder::new",
            "std::fs::remove_dir",
            "std::fs::remove_file",
            "std::os::unix::fs::symlink",
        ],
        reason: "It makes and removes a private directory of a random name in the user's runtime or temporary directory, with a link in it.",
    },
    AllowedCalls {
        file: "crates/loop-runner/src/runner/commit.rs",
        calls: &["std::fs::read_dir", "std::fs::symlink_metadata"],
        reason: "It looks up times and lengths of the files that git reports as changed, and opens no file.",
    },
    AllowedCalls {
        file: "crates/rlm-fleet/src/nats/fleet.rs",
        calls: &["std::fs::read_to_string"],
        reason: "It reads the certificates that the user names on the command line.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/git/bundle.rs",
        calls: &["fs_err::canonicalize"],
        reason: "It resolves two paths to compare them, and opens nothing.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/git/commit.rs",
        calls: &["fs_err::symlink_metadata"],
        reason: "It looks up how long a new file of the working tree is, and opens nothing.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/git/own_files.rs",
        calls: &["fs_err::symlink_metadata"],
        reason: "It looks up whether a file of the working tree is empty, and opens nothing.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/index.rs",
        calls: &["std::fs::DirBuilder::new"],
        reason: "It makes the directory of the list of live runs in the user's own state directory, outside of any project.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/locks.rs",
        calls: &[
            "std::fs::File::open",
            "std::fs::metadata",
            "std::fs::read_dir",
            "std::fs::read_link",
            "std::fs::read_to_string",
        ],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/project.rs",
        calls: &["fs_err::canonicalize", "fs_err::read_dir"],
        reason: "It resolves the directory that the user works in, and checks whether it can be listed.",
    },
    AllowedCalls {
        file: "crates/rlm-store/src/transfer/place_files.rs",
        calls: &[
            "fs_err::read_dir",
            "fs_err::remove_dir_all",
            "fs_err::remove_file",
            "fs_err::symlink_metadata",
        ],
        reason: "It lists the working tree of an import, and removes the files of a failed import; removals follow no link and leave .rlm out.",
    },
    AllowedCalls {
        file: "crates/rlm-terminal/src/console/job_control.rs",
        calls: &["fs_err::read_to_string"],
        reason: "It reads /proc.",
    },
    AllowedCalls {
        file: "crates/rlm-terminal/src/editor.rs",
        calls: &["fs_err::OpenOptions::new", "fs_err::remove_file"],
        reason: "It makes and removes a private copy of a random name in the temporary directory: O_EXCL follows no link.",
    },
    AllowedCalls {
        file: "crates/rlm-terminal/src/tty.rs",
        calls: &["rustix::fs::open"],
        reason: "It opens /dev/tty.",
    },
    AllowedCalls {
        file: "crates/rlm-view/src/access.rs",
        calls: &["std::fs::File::open", "std::fs::metadata"],
        reason: "It reads the certificate, the key and the password that the user names on the command line.",
    },
    AllowedCalls {
        file: "crates/rlm/src/command/checkpoints.rs",
        calls: &["fs_err::File::open", "fs_err::metadata"],
        reason: "It opens the input that the user names, which may also be a pipe; Ctrl-C ends the wait.",
    },
    AllowedCalls {
        file: "crates/rlm/src/command/doctor/find.rs",
        calls: &["fs_err::canonicalize"],
        reason: "It resolves programs of PATH to compare them, and opens nothing.",
    },
    AllowedCalls {
        file: "crates/rlm/src/command/doctor/machine.rs",
        calls: &["std::fs::read_link"],
        reason: "It reads /proc/self.",
    },
    AllowedCalls {
        file: "crates/rlm/src/command/init/mod.rs",
        calls: &["fs_err::OpenOptions::new", "fs_err::create_dir_all"],
        reason: "It writes the files of `rlm init` into the directory that the user names, only where no file exists: O_EXCL follows no link.",
    },
    AllowedCalls {
        file: "crates/rlm/src/command/man.rs",
        calls: &["fs_err::create_dir_all", "fs_err::write"],
        reason: "It writes the manual into a directory that the user names.",
    },
    AllowedCalls {
        file: "crates/rlm/src/command/report.rs",
        calls: &[
            "fs_err::OpenOptions::new",
            "fs_err::canonicalize",
            "fs_err::metadata",
        ],
        reason: "It writes into a pipe or a device only if the user named it by -o.",
    },
    AllowedCalls {
        file: "crates/rlm/src/demo/agent.rs",
        calls: &["fs_err::read_to_string", "fs_err::write"],
        reason: "It works in the directory that `rlm demo` made for itself.",
    },
    AllowedCalls {
        file: "crates/rlm/src/demo/project.rs",
        calls: &[
            "fs_err::canonicalize",
            "fs_err::create_dir",
            "fs_err::create_dir_all",
            "fs_err::read_dir",
            "fs_err::write",
        ],
        reason: "It makes the project of `rlm demo`, in a directory that must be new or empty.",
    },
    AllowedCalls {
        file: "crates/rlm/src/detach.rs",
        calls: &["fs_err::File::open", "fs_err::read_dir"],
        reason: "It opens /dev/null, and lists /dev/fd.",
    },
    AllowedCalls {
        file: "crates/rlm/src/resolve/checks.rs",
        calls: &["fs_err::canonicalize"],
        reason: "It resolves the prompt file to refuse a link out of the project, and opens nothing.",
    },
];
