--- Checks that modules share: constructor arguments and creation options, with the module's name in the
--- message.

local core = require "argand.core"
local options = require "argand.options"

local M = {}

--- Raises unless value is a whole number of at least `least`.
---@param owner string
---@param name string
---@param value any
---@param least integer
function M.require_count(owner, name, value, least)
  if not options.is_between(value, least, 2 ^ 53) or value ~= math.floor(value) then
    local got = type(value) == "number" and tostring(value) or type(value)
    core.raise("argument", owner, ("%s: expected a whole number >= %d, got %s"):format(name, least, got))
  end
end

--- Raises unless value is a tensor.
---@param owner string
---@param value any
---@param name? string of the argument, default "input"
function M.require_tensor(owner, value, name)
  if not core.is_tensor(value) then
    core.raise("argument", owner, ("%s: expected a tensor, got %s"):format(name or "input", type(value)))
  end
end

--- Returns "[32, 784]".
---@param shape integer[]
---@return string
function M.shape_text(shape)
  return "[" .. table.concat(shape, ", ") .. "]"
end

--- Returns the options of a module that owns parameters: its own over dtype, device and generator.
---@param owner string
---@param given? table
---@param known table
---@return table read, table creation options for a new parameter
function M.read_options(owner, given, known)
  local all = { dtype = "f32", device = "cpu", generator = options.optional.any }
  for name, default in pairs(known) do all[name] = default end
  local read = options.read(owner, given, all)
  return read, { dtype = read.dtype, device = read.device, requires_grad = true }
end

return M
