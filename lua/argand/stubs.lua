--- stubs: `argand help --luacats`: declarations for editors that read LuaCATS annotations (lua-language-server).
-- meta.lua first, then each op of the engine's table as a function of the module, a method and, where there is one, an
-- in-place method; dist/meta.lua last.
local core = require "argand.core"
local help = require "argand.help"

local M = {}

local TENSOR, OPERAND = "argand.Tensor", "argand.Tensor|number"

-- What the words of a signature are in Lua; a word that is not here is a choice, none|relu|gelu for instance.
local TYPES = {
  any = OPERAND, num = OPERAND, float = OPERAND, bool = OPERAND, bits = OPERAND, index = OPERAND, ["any[]"] = TENSOR .. "[]",
  dim = "integer", dims = "integer|integer[]", int = "integer", ints = "integer|integer[]", shape = "integer|integer[]",
  position = "integer", number = "number", flag = "boolean", dtype = "argand.Dtype", device = "string",
  generator = "argand.Generator",
}

local function type_of(param)
  return TYPES[param.type] or '"' .. param.type:gsub("|", '"|"') .. '"'
end

local function is_operand(param)
  return TYPES[param.type] == OPERAND or param.type == "any[]"
end

-- The same call with its options in a table after what must be there, and with a list as single numbers.
local function add_overloads(lines, params, is_method, can_out, returns)
  local leading, fields, list_at = is_method and { "self: " .. TENSOR } or {}, {}, nil
  for _, param in ipairs(params) do
    if TYPES[param.type] == "integer|integer[]" and not list_at then list_at = #leading end
    if param.optional then
      fields[#fields + 1] = param.name .. "?: " .. type_of(param)
    else
      leading[#leading + 1] = param.name .. ": " .. type_of(param)
    end
  end
  if can_out then fields[#fields + 1] = "out?: " .. TENSOR end
  if not is_method and not (params[1] and is_operand(params[1])) then fields[#fields + 1] = "requires_grad?: boolean" end
  local form = "---@overload fun(%s): " .. returns
  if #fields > 0 then
    local options = "options: {" .. table.concat(fields, ", ") .. "}"
    lines[#lines + 1] = form:format(table.concat(leading, ", ") .. (#leading > 0 and ", " or "") .. options)
  end
  if list_at then
    local before = table.concat(leading, ", ", 1, list_at)
    lines[#lines + 1] = form:format(before .. (list_at > 0 and ", " or "") .. "...: integer")
  end
end

-- One declaration; `owner` is "ag." or "Tensor:", whose self is the op's first parameter.
local function declare(info, owner, is_inplace)
  local is_method = owner == "Tensor:"
  local defaults, results = help.defaults_of(info.signature), {}
  for i = 1, is_inplace and 1 or info.outputs do results[i] = TENSOR end
  local returns, params, names = table.concat(results, ", "), {}, {}
  local lines = { "---" .. info.doc }
  for i = is_method and 2 or 1, #info.params do
    local param = info.params[i]
    local default = defaults[param.name] and " default " .. defaults[param.name] or ""
    lines[#lines + 1] = ("---@param %s%s %s%s"):format(param.name, param.optional and "?" or "", type_of(param), default)
    params[#params + 1], names[#names + 1] = param, param.name
  end
  lines[#lines + 1] = "---@return " .. returns
  add_overloads(lines, params, is_method, not is_inplace and info.outputs == 1, returns)
  lines[#lines + 1] = ("function %s%s(%s) end"):format(owner, info.name .. (is_inplace and "_" or ""),
    table.concat(names, ", "))
  return table.concat(lines, "\n")
end

--- The declarations of everything public, as the text of one Lua file.
---@return string
function M.text()
  local directory = debug.getinfo(1, "S").source:match("^@(.*)stubs%.lua$")
  local function read(name)
    local file = assert(io.open(directory .. name))
    local content = file:read("*a")
    file:close()
    return content
  end
  local parts = { read("meta.lua") .. "local ag = {}", "---@class " .. TENSOR .. "\nlocal Tensor = {}" }
  local names = core.op_names()
  table.sort(names)
  for _, name in ipairs(names) do
    local info = core.op_info(name)
    parts[#parts + 1] = declare(info, "ag.")
    if core.methods[name] then parts[#parts + 1] = declare(info, "Tensor:") end
    if core.methods[name .. "_"] then parts[#parts + 1] = declare(info, "Tensor:", true) end
  end
  parts[#parts + 1] = read("dist/meta.lua")
  return table.concat(parts, "\n\n") .. "\n\nreturn ag\n"
end

return M
