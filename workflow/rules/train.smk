"""What is trained or estimated per score: the score, moments, heads and which, optimal chains."""


use rule stage as score with:
    output:
        update("artifacts/{experiment}/{stage,score}/{part}/manifest.json"),


use rule stage as moments with:
    output:
        update("artifacts/{experiment}/{stage,moments}/{part}/manifest.json"),


use rule stage as heads with:
    output:
        update("artifacts/{experiment}/{stage,heads}/{part}/manifest.json"),


use rule stage as selection with:
    output:
        update("artifacts/{experiment}/{stage,selection}/{part}/manifest.json"),


use rule stage as chains with:
    output:
        update("artifacts/{experiment}/{stage,chains}/{part}/manifest.json"),
