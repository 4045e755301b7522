--- minimum: sample data.
local samples = require "support.samples"

return samples.binary {expect = {{{a = {1, 5}, b = {4, 2}}, {1, 2}}}}
