--- argand: the public names of the library. `local ag = require "argand"`.
-- Ops come from the engine's op table (argand.core); what is composed in Lua is added by the modules below.
local core = require "argand.core"

local source = debug.getinfo(1, "S").source
local directory = source:match("^@(.*)init%.lua$")
if directory then core.set_library_path(directory) end

local ag = {_NAME = "argand"}

-- What serves the library only.
local internal = {
  methods = true, raise = true, call = true, custom = true, custom_tie = true, backward_inner = true, address = true,
  read_element = true, set_library_path = true, collect_grads = true, clear_grads = true, dist = true, ddp = true,
  process = true,
}
for name, value in pairs(core) do
  if not internal[name] then ag[name] = value end
end

local methods = core.methods
require("argand.tensor").install(ag, methods)
require("argand.autodiff").install(ag)

local info = core.info()
ag._VERSION = info.version

-- Submodules are loaded when first asked for.
local submodules = {nn = true, optim = true, data = true, progress = true, format = true, help = true, dist = true}

return setmetatable(ag, {
  __index = function(_, name)
    if submodules[name] then
      local module = require("argand." .. name)
      rawset(ag, name, module)
      return module
    end
  end,
})
