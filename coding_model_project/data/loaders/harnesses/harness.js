{program}
;{
  class ATestFailed extends Error {}
  console.assert = (passed) => { if (!passed) throw new ATestFailed() }
  const files = require("fs")
  try {
{tests}
    files.writeSync(1, "\n" + files.readFileSync(0, "utf8"))
  } catch (error) {
    if (!(error instanceof ATestFailed)) throw error
    files.writeSync(1, "\na test failed\n")
  }
}
