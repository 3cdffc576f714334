"""Words and sentences for `made_problems`: groups of one meaning by "/" within and "|" between."""

from __future__ import annotations


def _groups(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(one.strip().split("/")) for one in text.replace("\n", "|").split("|") if one.strip()
    )


NOUNS = _groups("""
river/stream|castle/fortress|garden/orchard|robot/machine|merchant/trader|island/isle|bridge/crossing
tower/spire|library/archive|forest/woods|mountain/peak|village/hamlet|ship/vessel|dragon/serpent
lantern/lamp|market/bazaar|kingdom/realm|road/path|house/home|field/meadow|cave/cavern|crystal/gem
coin/token|box/crate|card/ticket|stone/rock|tree/sapling|flower/blossom|book/volume|letter/message
clock/timer|train/wagon|engine/motor|wizard/sorcerer|knight/warrior|farmer/grower|student/pupil
teacher/tutor|doctor/healer|painter/artist|singer/vocalist|ladder/staircase|mirror/glass|rope/cord
barrel/cask|bakery/oven|candle/torch|station/stop|planet/world|comet/meteor|rocket/shuttle|signal/beacon
computer/server|cable/wire|battery/cell|sensor/detector|camera/lens|drone/flyer|parcel/package
ant/beetle|wolf/hound|horse/pony|sheep/goat|bird/sparrow|fish/trout|cow/ox|bear/cub|cat/kitten
puzzle/riddle|contest/tournament|prize/award|ribbon/band|carpet/rug|mosaic/tiling|necklace/chain
piano/organ|melody/tune|recipe/formula|potion/brew|spell/charm|treasure/hoard|map/chart|compass/needle
""")
ADJECTIVES = _groups("""
large/huge|small/tiny|ancient/old|bright/shiny|dark/gloomy|fast/quick|slow/sluggish|heavy/weighty
empty/vacant|hidden/secret|broken/damaged|golden/gilded|silent/quiet|angry/furious|happy/cheerful
lucky/fortunate|strange/odd|famous/renowned|lonely/solitary|clever/smart|frozen/icy|dusty/dirty
narrow/thin|wide/broad|sharp/pointed|soft/gentle|round/circular|crooked/bent|magic/enchanted|wild/untamed
""")
VERBS = _groups("""
collects/gathers|builds/constructs|repairs/mends|paints/colours|counts/tallies|visits/attends
guards/protects|sells/trades|moves/shifts|cuts/slices|lifts/raises|throws/tosses|hides/conceals
watches/observes|measures/gauges|sorts/arranges|wraps/covers|opens/unlocks|breaks/smashes|joins/connects
chases/pursues|feeds/nourishes|borrows/lends|polishes/cleans|stacks/piles|draws/sketches|trains/coaches
""")
NAMES = _groups("""
Vasya|Polycarp|Alice|Bob|Monocarp|Kefa|Tanya|Arjun|Mei|Chidi|Sofia|Lars|Yuki|Omar|Ines|Pavel
Zoe|Hamid|Ravi|Nadia|Felix|Greta|Hugo|Irina|Jonas|Karim|Leila|Marco|Nils|Olga
""")
MEASURES = _groups("""
total weight/summed weight|number of moves/count of steps|longest run/maximal streak
greatest gap/widest gap|least cost/cheapest price|number of groups/count of clusters
largest area/biggest surface|shortest route/quickest way|alternating sum/signed sum
number of distinct values/count of different values|product of ends/ends multiplied
sum of maxima/maxima added up|number of inversions/count of swapped pairs|median height/middle height
lowest common divisor above one/smallest shared factor beyond one
number of palindromes/count of mirrored strings|most frequent value/commonest value
depth of the deepest level/deepest nesting|number of islands/count of separate regions
smallest missing value/first absent value|number of crossings/count of intersections
""")
CONDITIONS = _groups("""
no two neighbours are equal/adjacent ones always differ
every value is used at most twice/none is taken three times
the order is kept/nothing is rearranged|at most k changes are made/no more than k edits happen
all chosen ones are even/only even ones are picked|the first and the last stay fixed/both ends remain
each level is visited once/no level is entered again
the sum never becomes negative/the balance stays above zero
values wrap around after the largest/counting starts over past the top
a move costs its distance/each step is paid by its length
blocked cells are avoided/walls are never entered
pairs are formed from different halves/partners come from opposite sides
ties are broken by position/equal ones go by index
the greatest is removed first/the top one leaves first
only prime positions count/just prime indices matter
each one may rest once/one pause is allowed per piece
every third one is skipped/one in three is left out|both colours alternate/the two shades take turns
""")
STORY = (
    "{name} the {a0} {n0} {v0} every {a1} {n1} near the {n2}./"
    "Every {a1} {n1} close to the {n2} is one that {name}, a {a0} {n0}, {v0}.",
    "Beside it a {a2} {n3} {v1} the {n4}, which is {a3}./"
    "The {n4} there is {a3}, and a {a2} {n3} {v1} it.",
    "Whenever the {n5} {v2} a {n6}, the {a4} {n7} must be found again./"
    "One has to find the {a4} {n7} anew each time that the {n5} {v2} a {n6}.",
)
ASK = (
    "Find the {m} such that {c}, if the {n1} {v3} the {n8}./"
    "Given that the {n1} {v3} the {n8}, compute the {m} where {c}."
)
INPUT = (
    "The first line contains a single integer {x} (1 ≤ {x} ≤ {bound}). The second line contains {x} "
    "space-separated integers {y}_1, {y}_2, ..., {y}_{x} (0 ≤ {y}_i ≤ {limit})./"
    "The input consists of two lines: the number {x} of values, at most {bound} and at least 1, "
    "and then the values {y}_i themselves, none of them negative or above {limit}."
)
OUTPUT = "Print a single integer: the answer to the problem./Output one number, the answer."
BOILERPLATE = (
    "It is guaranteed that the sum of all values over all test cases does not exceed the bound.",
    "Since the answer can be very large, print it modulo 1000000007.",
    "The time limit of this problem is two seconds and the memory limit is 256 megabytes.",
    "Please note that the input may be large, so use a fast way of reading it.",
    "In the first sample test case the answer is obtained by taking the first and the last element.",
    "You have to answer several independent test cases, each of which is given in the same format.",
    "It can be shown that under the given constraints an answer always exists.",
    "Recall that a subsequence is obtained by removing zero or more elements without changing the order.",
    "This problem has two versions; the only difference between them is in the constraints.",
    "The elements of the sequence are numbered from left to right, starting from one.",
)
