//! Saved forms of live types, and the ways between them.

use std::time::Duration;

use crate::Timestamp;

/// The same thing in its other form.
pub(super) trait Other<T> {
    fn other(self) -> T;
}

impl<A: Other<B>, B> Other<Option<B>> for Option<A> {
    fn other(self) -> Option<B> {
        self.map(Other::other)
    }
}

impl<A: Other<B>, B> Other<Vec<B>> for Vec<A> {
    fn other(self) -> Vec<B> {
        self.into_iter().map(Other::other).collect()
    }
}

macro_rules! as_they_are {
    ($($type:ty),*) => { $(
        impl Other<$type> for $type {
            fn other(self) -> $type {
                self
            }
        }
    )* };
}

as_they_are!(bool, u32, u64, String, Duration, Timestamp);

/// Defines the saved form of each live type of the same name. Both are taken apart by name: a live field without a saved one does not compile.
macro_rules! saved {
    () => {};
    ($(#[$meta:meta])* struct $name:ident { $($(#[$at:meta])* $field:ident: $type:ty,)* } $($rest:tt)*) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        $(#[$meta])*
        pub(crate) struct $name { $($(#[$at])* $field: $type,)* }

        impl From<crate::$name> for $name {
            fn from(crate::$name { $($field,)* }: crate::$name) -> Self {
                Self { $($field: Other::other($field),)* }
            }
        }

        impl From<$name> for crate::$name {
            fn from($name { $($field,)* }: $name) -> Self {
                Self { $($field: Other::other($field),)* }
            }
        }

        saved!(@both $name);
        saved!($($rest)*);
    };
    ($(#[$meta:meta])* enum $name:ident {
        $($(#[$at:meta])* $variant:ident $(($($arg:ident: $type:ty),*))? $({ $($(#[$fat:meta])* $field:ident: $ftype:ty),* })?,)*
    } $($rest:tt)*) => {
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        $(#[$meta])*
        pub(crate) enum $name {
            $($(#[$at])* $variant $(($($type),*))? $({ $($(#[$fat])* $field: $ftype),* })?,)*
        }

        impl From<crate::$name> for $name {
            fn from(live: crate::$name) -> Self {
                match live {
                    $(crate::$name::$variant $(($($arg),*))? $({ $($field),* })? =>
                        Self::$variant $(($(Other::other($arg)),*))? $({ $($field: Other::other($field)),* })?,)*
                }
            }
        }

        impl From<$name> for crate::$name {
            fn from(saved: $name) -> Self {
                match saved {
                    $($name::$variant $(($($arg),*))? $({ $($field),* })? =>
                        Self::$variant $(($(Other::other($arg)),*))? $({ $($field: Other::other($field)),* })?,)*
                }
            }
        }

        saved!(@both $name);
        saved!($($rest)*);
    };
    (@both $name:ident) => {
        impl Other<crate::$name> for $name {
            fn other(self) -> crate::$name {
                self.into()
            }
        }

        impl Other<$name> for crate::$name {
            fn other(self) -> $name {
                self.into()
            }
        }
    };
}

pub(super) use saved;
