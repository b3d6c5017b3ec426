"""Creates a Plone site with documents in folders, in `FOLDER/Data.fs`.

`python create.py FOLDER DOCUMENTS`, with a Python that has Products.CMFPlone.
"""

import pathlib
import random
import sys

import transaction
from AccessControl.SecurityManagement import newSecurityManager
from plone_application import configured
from Testing.makerequest import makerequest

PROFILES = [
    "plone.app.contenttypes:default",
    "plone.restapi:default",
    "plonetheme.barceloneta:default",
]
FOLDERS = 10
WORDS = ["garden", "river", "letter", "music", "history", "engine", "school", "winter", "island"]
SUBJECTS = ("news", "science", "sport", "travel")


def main():
    folder, documents = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    storage = f"<blobstorage>\nblob-dir {folder}/blobs\n<filestorage>\npath {folder}/Data.fs\n"
    configured(folder, storage + "</filestorage>\n</blobstorage>")
    import Zope2

    app = makerequest(Zope2.app())
    app.acl_users.userFolderAddUser("admin", "admin", ["Manager"], [])
    newSecurityManager(None, app.acl_users.getUser("admin").__of__(app.acl_users))
    from Products.CMFPlone.factory import addPloneSite

    site = addPloneSite(app, "Plone", title="A site", extension_ids=PROFILES)
    transaction.commit()
    fill(site, documents)
    app._p_jar.db().pack()
    app._p_jar.db().close()


def fill(site, documents):
    from plone import api

    draw = random.Random(14)
    for number in range(FOLDERS):
        within = api.content.create(site, "Folder", f"folder-{number}", f"Folder {number}")
        api.content.transition(within, "publish")
        for page in range(documents // FOLDERS):
            title = " ".join(draw.choices(WORDS, k=3)).capitalize()
            text = " ".join(draw.choices(WORDS, k=60))
            made = api.content.create(
                within,
                "Document",
                f"page-{page}",
                title,
                description=text[:80],
                subject=(draw.choice(SUBJECTS),),
            )
            api.content.transition(made, "publish")
            if page % 50 == 49:
                transaction.savepoint(optimistic=True)
        transaction.commit()
        print(f"folder {number} of {FOLDERS}", flush=True)


if __name__ == "__main__":
    main()
