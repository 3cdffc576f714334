"""Recognition of a verb at the start of a text.

IFBench uses a statistical tagger whose model is not in any package registry, and which tags "Understand
the" as a noun and "*" as a verb. This module decides by endings and a list of English verbs. A word that
is equally often a noun, such as "answer", is a verb if the next word can start its object.
"""

from __future__ import annotations

from coding_model_project.grading.instructions.text import word_set

_AUXILIARIES = word_set("""
    am are aren be been being did didn do does doesn doing don done had hadn has hasn have haven
    having is isn was wasn were weren
""")
_IRREGULAR = word_set("""
    arose arisen ate awoke beat became began begun bent bitten blew born borne bought bound bred
    broke brought built burnt came caught chose chosen clung crept dealt drank drawn dreamt drew
    driven drove dug eaten fallen fed fell felt flew flown forbade forgave forgot forgotten fought
    found froze frozen gave given gone gotten grew grown heard held hidden kept knelt knew known
    laid lain learnt leapt led lent lit lost made meant met paid proven ran risen rode sang sank
    sat saw seen sent sewn shaken shown shrunk slept slid sold sought spent spoke spoken sprang
    stole stolen stood strove struck stuck sung swam swore sworn swept swung taken taught thought
    threw thrown told took tore torn went wept woke won wore worn wove woven wrote written
""")
_VERBS = word_set("""
    accept accompany achieve acknowledge acquire act adapt add address adhere adjust admit adopt
    advise affirm afford agree aim align allocate allow amplify analyse analyze announce
    anticipate apologize appear append apply appoint appreciate approach approve argue arise
    arrange arrive ask aspire assemble assert assess assign assist assume assure attach attain
    attend avoid awaken bake be become befriend beg begin behave behold believe belong bid bind
    boil borrow bow brainstorm breathe bring broaden browse build calculate carry carve cast catch
    celebrate characterize chase check cherish choose cite clarify classify cling close
    collaborate collect combine come commence commit communicate compare compile complement
    complete compose compute conceive concentrate conclude conduct configure confirm confront
    connect conquer consider consist construct consult contain contemplate continue contrast
    contribute convert convey convince cook cooperate correct counter craft create cultivate
    customize decide declare decorate dedicate deepen define delegate delete deliver delve
    demonstrate deny depart depict deploy derive describe deserve destroy detect determine develop
    devise diagnose dig dine disappear discard discover discuss dispel display distinguish
    distribute dive divide do download draw drink drive earn eat echo educate elaborate elevate
    eliminate embark embody embrace emerge emphasize employ empower enable enact encounter
    encourage endure engage enhance enjoy enlighten enlist enrich ensure enter entertain establish
    evaluate evoke evolve examine exceed execute exist expand expect explain explore expose extend
    extract fail fall feed feel fetch find finish fit fix flee follow forge forget forgive form
    formulate foster fulfil fulfill gain gather gaze generate get give glance glean go grab grasp
    greet grow guess handle hang happen harness hear help hesitate hide highlight hire hold honour
    identify ignite ignore illuminate illustrate imagine immerse implement imply import improve
    include incorporate increase indicate indulge infer inform infuse initiate inquire insert
    inspect inspire install integrate intend interact interpret introduce invent invest
    investigate invite involve join journey juggle justify keep kick kindle kneel know lack laugh
    launch lay lead lean leap learn leave lend lessen let leverage lie lift listen live locate
    lose love maintain make manage master maximize meet melt memorize mention merge minimize
    mitigate modify motivate move multiply navigate negotiate nest notice nurture obey observe
    obtain occur offer omit open operate optimize organize outline outweigh overcome own paint
    paraphrase participate pay perceive perform permit persist persuade pick plunge ponder portray
    possess pour practise praise pray predict prefer prepare present preserve pretend prevent
    prioritize proceed produce promote propose protect prove provide publish pull purchase pursue
    push put quantify raise reach react read realize recall receive recite recognize recommend
    reconcile recount reduce refer refine reflect refrain refuse regard reject rejoice relate
    relax release rely remain remember remind remove render repeat replace reply represent request
    require resolve respect respond restore retain rethink retrieve return reveal revise revisit
    rewrite rise roam run satisfy save savor savour say scan schedule scramble scrutinize seek
    seem seize select sell send separate serve set settle share shed shift show shut simplify
    simulate sing sit skip smile solve sort speak specify spend stand start stay steer stir stop
    store strengthen stretch strike strive submit succeed suggest sum summarise summarize support
    suppose surrender survive suspect sustain swim take talk teach tell tend terminate thank think
    thrive throw tie tighten touch trace transcend transform translate transport travel treat
    trust try turn uncover undergo understand undertake unfold unite unleash unlock unravel unveil
    update uphold upload urge use utilize validate vanish verify visit visualize wait wake walk
    wander want warn wash watch wear weave weep weigh whisk win wipe wish witness wonder work
    worry wrap write yell yield
""")
_VERB_OR_NOUN = word_set("""
    access account answer attempt back balance ban base battle blend block book boost break budget
    bump burn call capture care challenge change charge claim clean clear climb coach code combat
    command comment conflict contact control copy cost count cover crack credit cross crush cry
    cut damage dance dare dawn deal debate debug decline defeat delay demand design desire detail
    direct document doubt draft dream dress drop edit empty end escape estimate excuse exercise
    experience experiment express face fade fan favour fear fight figure file fill filter fire
    fish flip float flow fly focus force frame function fund glimpse grace grade ground group
    guard guide harvest haunt head heat hit host hope hunt impact index influence issue judge jump
    label land last layer level light limit line link list load lock log look mail manufacture map
    march mark market match matter mean measure mind mirror mix model monitor mount name need note
    number object order pack pair park part pass pause perfect picture place plan plant play plot
    point position post power practice press print process program progress project promise prompt
    question race rank rate reason rebuild recap recover record refresh register report rescue
    research rest result review reward ride ring risk rule rush sail sample score search season
    secure see sense shape shoot shop sign signal silence sketch slow snap sound spark split spot
    spread stage state steal step stress string structure study style supply surge surprise switch
    tackle target task taste team test time tour track trade train transfer trap trigger trim
    uncork view voice vote waste water wave welcome whisper
""")
_NOT_PARTICIPLES = word_set("""
    anything being bring ceiling cling ding during evening everything fling herring king lightning
    morning nothing offspring ping pudding ring shilling sibling sing sling something spring sting
    string swing thing viking wedding wing wring yearling bed bleed breed creed deed embed exceed
    feed freed greed heed hundred hatred indeed infrared kindred limited naked need proceed red
    purebred reed sacred seed shed shred sled speed succeed supposed tweed united unprecedented
    weed wicked
""")
_OBJECTS = word_set("""
    a all an another any anything away back both by down each either every everything forward her
    him his how if in it its itself just me more my myself nothing off on one only our ourselves
    out over some something that the their them themselves these this those through to together
    two up us what whatever when where whether which who whom why with you your yourself
""")


def starts_with_verb(words: list[str]) -> bool:
    """Return whether the first of these tokens is a verb. Modal verbs ("can", "would") do not count."""
    if not words or not words[0].isalpha():
        return False
    word = words[0].lower()
    after = words[1].lower() if len(words) > 1 else ""
    if word in _NOT_PARTICIPLES or len(word) < 5 or not word.endswith(("ing", "ed")):
        return _verb(word, has_object=after in _OBJECTS)
    return True


def _verb(word: str, *, has_object: bool) -> bool:
    if word in _AUXILIARIES or word in _IRREGULAR or word in _VERBS:
        return True
    if word.endswith(("ify", "ize")) and len(word) > 5:
        return True
    return has_object and not _BASES.isdisjoint((word, *_singular(word)))


_BASES = _VERBS | _VERB_OR_NOUN


def _singular(word: str) -> tuple[str, ...]:
    """Return possible base forms of a third-person verb, such as "try" for "tries"."""
    if not word.endswith("s"):
        return ()
    return (word[:-1], word.removesuffix("es"), word.removesuffix("ies") + "y")
