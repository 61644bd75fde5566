//! Acquires a volume besides what is on the disk.

use cheetah_acquire::acquire::{DecryptOrder, Report, decrypt, refuse_source_named};
use cheetah_acquire::order::{Destination, Opener, Request, check_distinct};
use cheetah_source::{LinkUse, VolumeChoice};

use super::show::Show;
use super::{Args, dial};
use crate::commands::options::must_not_exist;
use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// What `--unlock`, `--volume` and `--decrypted` ask for.
pub struct Decrypting {
    /// The volume, and the keys.
    pub choice: VolumeChoice,
    /// The image that gets its content.
    pub into: Destination,
}

impl Decrypting {
    /// Returns the options for the decrypted image, which is made besides that of the disk; `None` if none is asked for.
    pub fn asked(args: &Args, destinations: &[Destination], opener: impl Fn(&str) -> Opener) -> Result<Option<Self>> {
        let (choice, into) = match (args.unlock.choice(opener)?, &args.decrypted) {
            (None, _) => return Ok(None),
            (Some(choice), Some(into)) => (choice, into.parse::<Destination>()?),
            (Some(_), None) => {
                return Err(Failure::misused(
                    "the volume that --unlock opens or --volume names is imaged besides: say where, --decrypted FILE",
                ));
            }
        };
        let images = [destinations, std::slice::from_ref(&into)].concat();
        check_distinct(&images)?;
        // Before hours of work are spent: the files that they are read from are compared once they are open.
        args.unlock.others().iter().try_for_each(|other| refuse_source_named(other, &images))?;
        Ok(Some(Self { choice, into }))
    }

    /// Whether the images of what is on the disk are complete, and this one was begun: then only it is resumed.
    pub fn is_begun(&self) -> bool {
        self.into.beside("acquire").symlink_metadata().is_ok()
    }

    /// Fails if there is something in the way, before hours of work are spent.
    pub fn check(&self, force: bool) -> Result<()> {
        match (&self.into.object, self.into.path.extension()) {
            (None, Some(extension)) if extension != "drive" && !force => {
                must_not_exist(&self.into.path, "choose another name, or say --force to replace it")
            }
            _ => Ok(()),
        }
    }

    /// Decrypts the volume from the first of the images that were made, or else from the source itself.
    pub async fn run(self, request: &Request, link: LinkUse, stop: &mut Stop, ui: Ui) -> Result<Report> {
        let image = request.destinations.first().map(ToString::to_string);
        let of: Opener = match &image {
            Some(image) => dial(image, link, &request.session),
            None => request.source.clone(),
        };
        let into = self.into.to_string();
        let order = DecryptOrder { of, choice: self.choice, into: self.into };
        let mut show = Show::new(ui);
        let decrypted = decrypt(order, request, stop.asked(), |event| show.event(&event)).await;
        decrypted.map_err(|error| match image {
            Some(image) => Failure::from(error).while_doing(format_args!(
                "{image} is complete, and {into} with its volume is not (cheetah acquire {image} with the same --unlock, \
                 --volume, --with and --decrypted goes on)"
            )),
            None => Failure::from(error),
        })
    }
}
