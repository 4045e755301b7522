--- Sequential: modules in a row, each fed with what the one before returns.

local core = require "argand.core"
local class = require "argand.class"
local Module = require "argand.nn.module"

---@class argand.nn.Sequential: argand.nn.Module
local Sequential = Module:extend "Sequential"

local function is_step(value)
  return class.is_a(value, Module) or type(value) == "function"
end

--- Takes modules (or functions of one tensor), as arguments or as one table; model[i] is the i-th.
---@param ... argand.nn.Module|function
function Sequential:init(...)
  local steps = { ... }
  local first = steps[1]
  if #steps == 1 and type(first) == "table" and getmetatable(first) == nil then steps = first end
  for position = 1, #steps do
    if not is_step(steps[position]) then
      local got = type(steps[position])
      local message = ("step %d: expected a module or a function, got %s"):format(position, got)
      core.raise("argument", "Sequential", message, "a class needs a call to make a module, e.g. nn.ReLU()")
    end
    self[position] = steps[position]
  end
end

function Sequential:__len()
  return #self._values
end

--- Adds a step at the end.
---@param step argand.nn.Module|function
---@return argand.nn.Sequential self
function Sequential:add(step)
  if not is_step(step) then
    core.raise("argument", "Sequential", "step: expected a module or a function, got " .. type(step))
  end
  self[#self + 1] = step
  return self
end

--- Feeds x to the first step, its result to the second and so on; returns that of the last.
---@param x argand.Tensor
---@return argand.Tensor
function Sequential:forward(x)
  for _, step in ipairs(self._values) do x = step(x) end
  return x
end

return Sequential
