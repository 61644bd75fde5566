//! Enums whose variants have names.

/// Defines an enum whose variants have names: `ALL`, `name` and `of_name` follow from them.
///
/// ```
/// cheetah_kit::named! {
///     /// A direction.
///     #[derive(Debug, Clone, Copy, PartialEq, Eq)]
///     pub enum Direction {
///         /// To the far end.
///         There = "there",
///         /// From the far end.
///         Back = "back",
///     }
/// }
///
/// assert_eq!((Direction::ALL.len(), Direction::Back.name()), (2, "back"));
/// assert_eq!((Direction::of_name("there"), Direction::of_name("away")), (Some(Direction::There), None));
/// ```
#[macro_export]
macro_rules! named {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $kind:ident {
            $($(#[$about:meta])* $variant:ident = $name:literal),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $kind {
            $($(#[$about])* $variant),+
        }

        impl $kind {
            /// All of them, in order.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The one of this name.
            pub fn of_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}
