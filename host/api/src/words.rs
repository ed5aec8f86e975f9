//! Enums whose variants each have a word, from one table.

/// Makes an enum, the list of its variants and the word of each.
#[macro_export]
macro_rules! words {
    (
        $(#[$about:meta])*
        $visible:vis enum $name:ident {
            $($(#[$meaning:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$about])*
        $visible enum $name {
            $($(#[$meaning])* $variant,)*
        }

        impl $name {
            /// Each of them, in order.
            $visible const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The word as it is shown.
            $visible fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}
