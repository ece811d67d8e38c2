"""What is trained or estimated per score: the score itself, moments, covariance heads."""


use rule stage as score with:
    output:
        "artifacts/{experiment}/{stage,score}/{part}/manifest.json",


use rule stage as moments with:
    output:
        "artifacts/{experiment}/{stage,moments}/{part}/manifest.json",


use rule stage as heads with:
    output:
        "artifacts/{experiment}/{stage,heads}/{part}/manifest.json",
