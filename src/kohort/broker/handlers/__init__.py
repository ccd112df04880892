"""The broker's own requests, one file per subject: message in, message out, no IO of their own."""
